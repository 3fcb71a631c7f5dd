"""What every worker script shares: reading its job, reporting events, failing clearly, dying with its parent.

A worker is one script, run as ``python worker.py job.json`` by the interpreter of its tool's own environment. It may
import this module (its folder is put on ``PYTHONPATH``) and its tool, nothing else of Engineworks. Standard library
only, so that any Python from 3.9 on can load it.

``job.json``::

    {"stage": str, "params": {...}, "inputs": {name: directory}, "output": directory, "scratch": directory,
     "events": file, "threads": int, "tools": {toolchain: interpreter}}

``output`` exists and is empty; whatever stands in it when the worker exits 0 is the artifact. ``scratch`` outlives a
killed worker and is given again to the next one with the same key: keep resumable state there, or nothing.

``events.jsonl`` has one object a line, always with ``event`` and ``time`` (seconds since the epoch)::

    {"event": "progress", "done": 3, "total": 30, "unit": "layers", "message": "..."}
    {"event": "metric", "name": "perplexity", "value": 15.6}
    {"event": "log", "message": "..."}
    {"event": "error", "cause": "out_of_memory" | "disk_full" | "bad_input" | "tool", "message": "...", "hint": "..."}

Exit status: 0 done, 2 the input is at fault (:class:`Refusal`), 1 anything else.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIFELINE = "ENGINEWORKS_LIFELINE_FD"
"""Environment variable naming the read end of a pipe that the parent holds open for as long as it lives."""


class Refusal(Exception):
    """The input can't be worked on. ``hint`` says what to change."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ToolFailed(Exception):
    """The tool ran and failed, and the worker knows why. ``cause`` is one of the words above."""

    def __init__(self, cause: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.cause = cause
        self.hint = hint


@dataclass(frozen=True)
class Job:
    """One unit of work, as the parent wrote it to ``job.json``."""

    stage: str
    params: dict[str, Any]
    inputs: dict[str, Path]
    output: Path
    scratch: Path
    threads: int
    tools: dict[str, str] = field(default_factory=dict)
    """Interpreters of other toolchains that the stage names."""


@dataclass
class Events:
    """Appends events to ``events.jsonl``; safe to call from any thread."""

    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def emit(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, "time": time.time(), **fields})
        with self._lock, self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def progress(self, done: float, total: float | None, unit: str, message: str = "") -> None:
        self.emit("progress", done=done, total=total, unit=unit, message=message)

    def metric(self, name: str, value: float) -> None:
        self.emit("metric", name=name, value=value)

    def log(self, message: str) -> None:
        self.emit("log", message=message)


def run_worker(work: Callable[[Job, Events], None]) -> None:
    """Run ``work`` on the job named in ``sys.argv[1]`` and exit with the status the contract promises."""
    _die_with_parent()
    raw = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    events = Events(Path(raw["events"]))
    job = Job(
        stage=raw["stage"],
        params=raw["params"],
        inputs={name: Path(folder) for name, folder in raw["inputs"].items()},
        output=Path(raw["output"]),
        scratch=Path(raw["scratch"]),
        threads=raw["threads"],
        tools=raw.get("tools", {}),
    )
    try:
        work(job, events)
    except Refusal as refusal:
        events.emit("error", cause="bad_input", message=str(refusal), hint=refusal.hint)
        _leave(2)
    except ToolFailed as failed:
        events.emit("error", cause=failed.cause, message=str(failed), hint=failed.hint)
        _leave(2 if failed.cause == "bad_input" else 1)
    except BaseException as error:
        traceback.print_exc()
        events.emit("error", cause=_cause_of(error), message=_one_line(error), hint="")
        _leave(1)
    events.metric("peak_rss_bytes", _peak_rss_bytes())
    _leave(0)


def _leave(status: int) -> None:
    # Tools leave non-daemon threads and atexit hooks behind that can hang or crash a finished job: the output is
    # complete and the parent syncs it, so nothing is lost by leaving at once.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _peak_rss_bytes() -> int:
    """Most resident memory this process has had. Linux's own count: getrusage includes the parent's, before exec."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def _cause_of(error: BaseException) -> str:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    if "can't allocate memory" in str(error) or "not enough memory" in str(error):
        return "out_of_memory"
    full = (errno.ENOSPC, errno.EDQUOT)
    if (isinstance(error, OSError) and error.errno in full) or "No space left on device" in str(error):
        return "disk_full"
    return "tool"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:600]


def _die_with_parent() -> None:
    """Kill this process group when the parent is gone, however it went (the pipe closes even on SIGKILL)."""
    descriptor = os.environ.get(LIFELINE)
    if descriptor is None:
        return

    def watch() -> None:
        while os.read(int(descriptor), 1):
            continue
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
