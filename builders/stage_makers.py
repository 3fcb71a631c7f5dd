"""Stages from the code that does them: keyed by all the source that has a say."""

from __future__ import annotations

from pathlib import Path

from pydantic import JsonValue

from artifacts.digest import digest_sources
from artifacts.stage import Stage
from builders.resolve import fingerprint
from builders.toolchains import find_toolchain

HERE = Path(__file__).parent
ROOT = HERE.parent
TOOLCHAIN = "llmcompressor"


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
    toolchain: str = TOOLCHAIN,
    pins: str | None = None,
    tools: tuple[str, ...] = (),
) -> Stage:
    """A stage done by a worker script, keyed by its source and that of the ``helpers`` it imports.

    ``tools``: other toolchains that it starts programs of. ``pins``: what stands for the environment's content when it
    is not a pinned requirements file.
    """
    sources = [ROOT / script, HERE / "workers" / "worker_api.py", *(ROOT / helper for helper in helpers)]
    return Stage(
        name=name,
        kind=name.partition(":")[0],
        entry=script,
        toolchain=toolchain,
        params=params,
        inputs=inputs,
        after=after,
        tools={tool: find_toolchain(tool, home).pins for tool in tools},
        pins=find_toolchain(toolchain, home).pins if pins is None else pins,
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


def data_file_stage(name: str, path: Path) -> Stage:
    """Take a file or folder of the user's into the store, as it is now."""
    params: dict[str, JsonValue] = {"path": str(path.resolve()), "fingerprint": fingerprint(path)}
    return function_stage(name, "builders.data_files:copy", params=params, inputs={})
