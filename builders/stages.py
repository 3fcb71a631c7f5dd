"""The stages of this room: from a resolved source to checked, quantized checkpoints and engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from artifacts.stage import Stage
from builders.integrity.check import HELPERS
from builders.resolve import ResolvedSource
from builders.stage_makers import data_file_stage, function_stage, worker_stage
from builders.trtllm.line import engine_lines, is_served_as_checkpoint
from builders.trtllm.stages import engine_stages
from recipes.models import Calibration, FileData, Recipe
from recipes.targets import TargetCard
from recipes.tools import Tool
from recipes.variants import Gguf, Variant, is_data_free, needs_calibration, quantizer_options, tool_of

FETCHERS = {"hf": "fetch_hub", "path": "fetch_path", "s3": "fetch_s3", "gguf": "fetch_gguf"}


def builder_stages(
    recipe: Recipe, cards: Sequence[TargetCard], source: ResolvedSource, home: Path
) -> tuple[Stage, ...]:
    """Fetch, calibrate, then quantize and check every variant, then build every engine; in topological order."""
    stages = [*_source_stages(source, recipe, home)]
    if any(needs_calibration(variant) for variant in recipe.variants.values()):
        stages += _calibration_stages(recipe.calibration, home)
    for name, variant in recipe.variants.items():
        if is_served_as_checkpoint(recipe, name, cards):
            stages += [_quantize_stage(name, variant, recipe, source, home), _integrity_stage(name, variant)]
            if (tool := tool_of(variant)) and tool.judged_by:
                stages.append(_life_stage(name, tool.judged_by, home))
    for line in engine_lines(recipe, cards):
        stages += engine_stages(line, recipe, source, home)
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


def _quantize_stage(name: str, variant: Variant, recipe: Recipe, source: ResolvedSource, home: Path) -> Stage:
    inputs = {"checkpoint": "checkpoint"}
    if needs_calibration(variant):
        inputs["calibration"] = "calibration"
    tool = tool_of(variant)
    if tool is None:
        raise ValueError(f"{name} is made by no quantizer")
    helpers = ["builders/workers/checkpoint_files.py"]
    if tool.name == "modelopt":
        helpers.append("builders/workers/modelopt_common.py")
    params: dict[str, JsonValue] = {
        "scheme": variant.scheme,
        "options": quantizer_options(variant),
        "keep": list(variant.keep),
    }
    if variant.kv_cache:
        params["kv_cache"] = variant.kv_cache
    if isinstance(variant, Gguf):
        params["model"] = recipe.model
    return worker_stage(
        f"quantize:{name}",
        f"builders/workers/{_worker(variant, tool, source)}",
        home,
        params=params,
        inputs=inputs,
        helpers=tuple(helpers),
        timeout_s=variant.timeout_minutes * 60,
        toolchain=tool.toolchain,
    )


def _worker(variant: Variant, tool: Tool, source: ResolvedSource) -> str:
    """Weights alone are quantized shard by shard, in bounded memory; pickles have no shards to read so."""
    has_headers = bool(source.facts.linears)
    streams = tool.name == "llm-compressor" and is_data_free(variant) and has_headers
    return "llmcompressor_stream.py" if streams else tool.worker


def _integrity_stage(name: str, variant: Variant) -> Stage:
    if isinstance(variant, Gguf):
        return function_stage(
            f"integrity:{name}",
            "builders.integrity.gguf:check",
            params={"type": variant.type},
            inputs={"source": "checkpoint", "output": f"quantize:{name}"},
            helpers=("builders/integrity/findings.py", "builders/rope.py", "builders/checkpoint.py"),
        )
    return function_stage(
        f"integrity:{name}",
        "builders.integrity.check:check",
        params={"variant": variant.model_dump(mode="json", exclude={"targets", "margin", "timeout_minutes"})},
        inputs={"source": "checkpoint", "output": f"quantize:{name}"},
        helpers=(
            "builders/checkpoint.py",
            "builders/estimates.py",
            "builders/model_facts.py",
            "builders/rope.py",
            "builders/safetensors_header.py",
            "builders/tensor_values.py",
            *(f"builders/integrity/{module}.py" for module in HELPERS),
        ),
    )


def _life_stage(name: str, toolchain: str, home: Path) -> Stage:
    return worker_stage(
        f"life:{name}",
        "builders/workers/life.py",
        home,
        params={},
        inputs={"source": "checkpoint", "output": f"quantize:{name}"},
        after=(f"integrity:{name}",),
        toolchain=toolchain,
    )
