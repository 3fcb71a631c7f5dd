"""Work out one stage: the stored artifact if there is one, else the worker or function that makes it."""

from __future__ import annotations

import errno
import importlib
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from artifacts.stage import Stage, StageRecord
from artifacts.store import Store
from builders.toolchains import find_toolchain, make_ready
from builders.worker_process import Event, WorkerJob, run_worker_process
from recipes.errors import EngineworksError, StageFailed

ROOT = Path(__file__).parent.parent

OnStageEvent = Callable[[str, Event], None]
"""Called with the stage's name and a worker event (see builders/workers/worker_api.py)."""


@dataclass(frozen=True)
class Job:
    """What a stage function is given; the same as a worker script finds in its ``job.json``."""

    stage: str
    params: dict[str, Any]
    inputs: dict[str, Path]
    output: Path
    scratch: Path
    home: Path
    report: Callable[[Event], None]

    def say(self, message: str) -> None:
        self.report({"event": "log", "message": message})


@dataclass(frozen=True)
class Workshop:
    """Where and how stages are run. Nothing of it changes what comes out."""

    store: Store
    home: Path
    threads: int = 1
    """Processor threads a worker may use."""
    on_event: OnStageEvent = lambda _stage, _event: None
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class StageResult:
    record: StageRecord
    outcome: Literal["cached", "adopted", "ran"]
    """``adopted``: another key had already turned the very same inputs into this artifact."""


def find_result(stage: Stage, key: str, inputs: dict[str, str], store: Store) -> StageResult | None:
    """What is stored for a stage, by its key or by its inputs' digests. ``inputs``: input name → artifact digest."""
    if record := store.record(key):
        return StageResult(record, "cached")
    if stage.inputs and len(inputs) == len(stage.inputs) and (twin := store.record(stage.address(inputs))):
        return StageResult(store.adopt(key, twin.artifact, stage.name, twin.bytes, twin.metrics), "adopted")
    return None


def run_stage(stage: Stage, key: str, inputs: dict[str, str], shop: Workshop) -> StageResult:
    """Return the stage's artifact, working it out if need be; one builder a key, whatever the number of processes.

    Raises :class:`StageFailed` (and then nothing is recorded), or :class:`EngineworksError` from the store.
    """

    def report(event: Event) -> None:
        shop.on_event(stage.name, event)

    if found := find_result(stage, key, inputs, shop.store):
        return found
    waiting = {"event": "log", "message": "another build is doing this; waiting for it"}
    with shop.store.building(key, waiting=lambda: report(waiting)):
        if found := find_result(stage, key, inputs, shop.store):
            return found
        work = None
        try:
            work = shop.store.work_folder(key)
            metrics = _work_out(stage, key, inputs, work, shop, report)
            record = shop.store.commit(key, work, stage.name, metrics)
            if stage.inputs:
                shop.store.adopt(stage.address(inputs), record.artifact, stage.name, record.bytes, record.metrics)
        except OSError as error:
            raise _os_failure(stage.name, error) from error
        finally:
            if work is not None:
                shutil.rmtree(work, ignore_errors=True)
        return StageResult(record, "ran")


def _work_out(
    stage: Stage, key: str, inputs: dict[str, str], work: Path, shop: Workshop, report: Callable[[Event], None]
) -> dict[str, float]:
    folders = {name: shop.store.artifact(digest).path for name, digest in inputs.items()}
    output, scratch = work / "data", shop.store.scratch_folder(key)
    if stage.toolchain is None:
        module, _, function = stage.entry.partition(":")
        started = time.monotonic()
        getattr(importlib.import_module(module), function)(
            Job(stage.name, dict(stage.params), folders, output, scratch, shop.home, report)
        )
        return {"seconds": round(time.monotonic() - started, 3)}
    toolchain = find_toolchain(stage.toolchain, shop.home)
    tools = {name: find_toolchain(name, shop.home) for name in stage.tools}
    for needed in (toolchain, *tools.values()):
        make_ready(needed, lambda message: report({"event": "log", "message": message}))
    return run_worker_process(
        WorkerJob(
            stage=stage.name,
            python=toolchain.python,
            script=ROOT / stage.entry,
            params=dict(stage.params),
            inputs=folders,
            output=output,
            scratch=scratch,
            work=work,
            threads=shop.threads,
            timeout_s=stage.timeout_s,
            tools={name: str(tool.python) for name, tool in tools.items()},
            on_event=report,
            stop=shop.stop,
        )
    )


def _os_failure(stage: str, error: OSError) -> EngineworksError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StageFailed(stage, "disk_full", f"the disk is full ({error.filename})", hint="Free space and run again")
    return StageFailed(stage, "tool", f"{error.strerror or error} ({error.filename})", hint="Is the store writable?")
