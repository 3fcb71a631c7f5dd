"""Let a release answer a prompt on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlparse

from artifacts.home import Home
from artifacts.pull import pull
from artifacts.registry import Registry
from artifacts.release import ReleaseRef
from builders.run_stage import ROOT, OnStageEvent
from builders.stage_makers import TOOLCHAIN
from builders.toolchains import find_toolchain, make_ready
from builders.worker_process import WorkerJob, run_worker_process
from flows.machine import cores


def answer(
    registry: Registry, ref: ReleaseRef, prompt: str, max_new_tokens: int, home: Home, on_event: OnStageEvent
) -> str:
    """The greedy answer of a release's weights, by transformers. Raises :class:`recipes.errors.StageFailed`."""
    toolchain = find_toolchain(TOOLCHAIN, home.root)
    make_ready(toolchain, lambda message: on_event("try", {"event": "log", "message": message}))
    with TemporaryDirectory(prefix="engineworks-") as name:
        work = Path(name)
        for folder in ("output", "scratch"):
            (work / folder).mkdir()
        job = WorkerJob(
            stage="try",
            python=toolchain.python,
            script=ROOT / "builders" / "workers" / "generate.py",
            params={"prompt": prompt, "max_new_tokens": max_new_tokens},
            inputs={"checkpoint": _weights(registry, ref, home)},
            output=work / "output",
            scratch=work / "scratch",
            work=work,
            threads=cores(),
            timeout_s=3600,
            on_event=lambda event: on_event("try", event),
        )
        run_worker_process(job)
        return str(json.loads((work / "output" / "answer.json").read_text(encoding="utf-8"))["text"])


def _weights(registry: Registry, ref: ReleaseRef, home: Home) -> Path:
    """Where the weights lie: in the registry itself when it is a directory, else pulled once and kept."""
    parts = urlparse(registry.location(ref))
    if parts.scheme == "file":
        return Path(parts.path) / "weights"
    kept = home.root / "pulled" / str(ref).replace("/", "--")
    kept.parent.mkdir(parents=True, exist_ok=True)
    return pull(registry, ref, kept) / "weights"
