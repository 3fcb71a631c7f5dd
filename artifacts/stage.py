"""A stage is a pure function of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue

from artifacts.digest import digest_json
from recipes.strict import Strict


class Stage(Strict):
    """One step of a build. Its output depends on nothing but what is named here."""

    name: str
    """Unique in its plan: ``quantize:gptq``."""
    kind: str
    """What is done, whatever the variant: ``quantize``."""
    entry: str
    """Code that does it: a worker script (``builders/workers/x.py``), or a function here (``module:function``)."""
    toolchain: str | None = None
    """Environment a worker script runs in. None for functions."""
    params: dict[str, JsonValue] = {}
    inputs: dict[str, str] = {}
    """Name under which the code sees an input → the stage whose artifact it is."""
    after: tuple[str, ...] = ()
    """Stages that must have succeeded first though nothing of theirs is read (a check before an expensive stage)."""
    pins: str = ""
    """Digest of the toolchain's pinned requirements."""
    tools: dict[str, str] = {}
    """Other toolchains that the worker starts programs of, and the digest of each one's pins."""
    code: str
    """Digest of the source that does the work."""
    timeout_s: Annotated[float, Field(gt=0)] = 24 * 3600

    def address(self, inputs: Mapping[str, str]) -> str:
        """Key of this stage with each input named by ``inputs[name]``: a stage key, or an artifact digest.

        The name, the order of execution and the time allowed do not change the output, so they are no part of it.
        """
        return digest_json(
            {
                "kind": self.kind,
                "entry": self.entry,
                "params": self.params,
                "inputs": {name: inputs[name] for name in self.inputs},
                "toolchain": self.toolchain,
                "pins": self.pins,
                "tools": self.tools,
                "code": self.code,
            }
        )


def keys_of(stages: tuple[Stage, ...]) -> dict[str, str]:
    """Key of every stage by name, in one pass: a Merkle hash over all that determines its output.

    ``stages`` must be in topological order, as a plan holds them.
    """
    keys: dict[str, str] = {}
    for stage in stages:
        keys[stage.name] = stage.address({name: keys[source] for name, source in stage.inputs.items()})
    return keys


class StageRecord(Strict):
    """That a key has been worked out, and what came of it. Only ``key`` and ``artifact`` are facts about the output."""

    key: str
    artifact: str
    """Digest of the artifact."""
    stage: str
    bytes: int
    metrics: dict[str, float] = {}
    """What was measured on the way (``seconds``, ``peak_rss_bytes``, what the worker reported): never part of a key."""
    built_at: str
    """UTC, ISO 8601."""
