"""The stages of this room: from a resolved source to checked, quantized checkpoints."""

from __future__ import annotations

from pathlib import Path

from pydantic import JsonValue

from artifacts.digest import digest_sources
from artifacts.stage import Stage
from builders.resolve import ResolvedSource, fingerprint
from builders.toolchains import find_toolchain
from recipes.models import Calibration, FileData, Recipe
from recipes.variants import Variant, needs_calibration, quantizer_options

HERE = Path(__file__).parent
ROOT = HERE.parent
TOOLCHAIN = "llmcompressor"
FETCHERS = {"hf": "fetch_hub", "path": "fetch_path", "s3": "fetch_s3", "gguf": "fetch_gguf"}


def worker_stage(
    name: str,
    script: str,
    home: Path,
    *,
    params: dict[str, JsonValue],
    inputs: dict[str, str],
    helpers: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    timeout_s: float = 24 * 3600,
) -> Stage:
    """A stage done by a worker script, keyed by its source and that of the ``helpers`` it imports."""
    sources = [ROOT / script, HERE / "workers" / "worker_api.py", *(ROOT / helper for helper in helpers)]
    return Stage(
        name=name,
        kind=name.partition(":")[0],
        entry=script,
        toolchain=TOOLCHAIN,
        params=params,
        inputs=inputs,
        after=after,
        pins=find_toolchain(TOOLCHAIN, home).pins,
        code=digest_sources(sources),
        timeout_s=timeout_s,
    )


def function_stage(
    name: str, entry: str, *, params: dict[str, JsonValue], inputs: dict[str, str], helpers: tuple[str, ...] = ()
) -> Stage:
    """A stage done by a function here, keyed by the source of its module and of the ``helpers`` it calls."""
    module = entry.partition(":")[0].replace(".", "/") + ".py"
    return Stage(
        name=name,
        kind=name.partition(":")[0],
        entry=entry,
        params=params,
        inputs=inputs,
        code=digest_sources(ROOT / path for path in (module, *helpers)),
    )


def builder_stages(recipe: Recipe, source: ResolvedSource, home: Path) -> tuple[Stage, ...]:
    """Fetch, calibrate, then quantize and check every variant; in topological order."""
    stages = [*_source_stages(source, recipe, home)]
    if any(needs_calibration(variant) for variant in recipe.variants.values()):
        stages += _calibration_stages(recipe.calibration, home)
    for name, variant in recipe.variants.items():
        stages += [_quantize_stage(name, variant, home), _integrity_stage(name, variant)]
    return tuple(stages)


def _source_stages(source: ResolvedSource, recipe: Recipe, home: Path) -> list[Stage]:
    entry = f"builders.fetch:{FETCHERS[source.kind]}"
    helpers = ("builders/checkpoint.py",)
    if recipe.source.kind != "gguf":
        return [function_stage("checkpoint", entry, params=source.params, inputs={}, helpers=helpers)]
    return [
        function_stage("gguf", entry, params=source.params, inputs={}, helpers=helpers),
        worker_stage(
            "checkpoint",
            "builders/workers/gguf_to_hf.py",
            home,
            params={"file": recipe.source.file.name, "dtype": recipe.source.dtype},
            inputs={"root": "gguf"},
        ),
    ]


def _calibration_stages(calibration: Calibration, home: Path) -> list[Stage]:
    params = calibration.model_dump(mode="json")
    inputs = {"checkpoint": "checkpoint"}
    stages: list[Stage] = []
    if isinstance(calibration.data, FileData):
        file = calibration.data.file
        stages.append(data_file_stage("calibration-data", file))
        params["data"]["file"] = file.name
        inputs["data"] = "calibration-data"
    stages.append(
        worker_stage(
            "calibration",
            "builders/workers/calibration.py",
            home,
            params=params,
            inputs=inputs,
            helpers=("builders/workers/pydoc_corpus.py",),
        )
    )
    return stages


def data_file_stage(name: str, path: Path) -> Stage:
    """Take a file or folder of the user's into the store, as it is now."""
    params: dict[str, JsonValue] = {"path": str(path.resolve()), "fingerprint": fingerprint(path)}
    return function_stage(name, "builders.data_files:copy", params=params, inputs={})


def _quantize_stage(name: str, variant: Variant, home: Path) -> Stage:
    inputs = {"checkpoint": "checkpoint"}
    if needs_calibration(variant):
        inputs["calibration"] = "calibration"
    return worker_stage(
        f"quantize:{name}",
        "builders/workers/llmcompressor_quantize.py",
        home,
        params={"scheme": variant.scheme, "options": quantizer_options(variant), "keep": list(variant.keep)},  # pyright: ignore[reportArgumentType]
        inputs=inputs,
        timeout_s=variant.timeout_minutes * 60,
    )


def _integrity_stage(name: str, variant: Variant) -> Stage:
    return function_stage(
        f"integrity:{name}",
        "builders.integrity:check",
        params={"variant": variant.model_dump(mode="json")},
        inputs={"source": "checkpoint", "output": f"quantize:{name}"},
        helpers=(
            "builders/checkpoint.py",
            "builders/safetensors_header.py",
            "builders/model_facts.py",
            "builders/estimates.py",
        ),
    )
