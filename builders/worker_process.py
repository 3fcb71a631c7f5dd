"""Run one worker script in its toolchain: own process group, events, time limit, clear causes of failure."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipes.errors import StageFailed

WORKER_API = Path(__file__).parent / "workers"
POLL_S = 0.1

Event = dict[str, Any]
OnEvent = Callable[[Event], None]


@dataclass
class WorkerJob:
    """What ``job.json`` says (see builders/workers/worker_api.py), and how the worker is run."""

    stage: str
    python: Path
    script: Path
    params: dict[str, Any]
    inputs: dict[str, Path]
    output: Path
    scratch: Path
    work: Path
    """Folder for job.json, events.jsonl and log.txt."""
    threads: int
    timeout_s: float
    on_event: OnEvent
    tools: dict[str, str] = field(default_factory=dict[str, str])
    """Interpreters of other toolchains, by name."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set from anywhere to kill the worker."""


def run_worker_process(job: WorkerJob) -> dict[str, float]:
    """Run a worker to its end. Returns its metrics with ``seconds``. Raises :class:`StageFailed`."""
    events_file, job_file, log_file = (job.work / name for name in ("events.jsonl", "job.json", "log.txt"))
    events_file.touch()
    description = {
        "stage": job.stage,
        "params": job.params,
        "inputs": {name: str(path) for name, path in job.inputs.items()},
        "output": str(job.output),
        "scratch": str(job.scratch),
        "events": str(events_file),
        "threads": job.threads,
        "tools": job.tools,
    }
    job_file.write_text(json.dumps(description, indent=1), encoding="utf-8")
    metrics: dict[str, float] = {}
    errors: list[Event] = []

    def take(event: Event) -> None:
        if event.get("event") == "metric":
            metrics[event["name"]] = float(event["value"])
        elif event.get("event") == "error":
            errors.append(event)
        job.on_event(event)

    kills_before = _kernel_kills()
    started = time.monotonic()
    with _started(job, job_file, log_file) as process:
        stopped = _follow(process, events_file, take, started + job.timeout_s, job.stop)
    metrics["seconds"] = round(time.monotonic() - started, 3)
    if process.returncode == 0 and not stopped:
        return metrics
    raise _failure(job, process.returncode, stopped, errors, log_file, oom_killed=_kernel_kills() > kills_before)


@contextmanager
def _started(job: WorkerJob, job_file: Path, log_file: Path) -> Generator[subprocess.Popen[bytes]]:
    """The worker, in a process group that ends with this block or with this process, whichever ends first."""
    theirs, ours = os.pipe()  # the worker waits on its read end, which closes when we are gone, even by SIGKILL
    threads = str(job.threads)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in (str(WORKER_API), os.environ.get("PYTHONPATH", "")) if p),
        "PYTHONUNBUFFERED": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin while they wait take the core from the stage beside them
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "ENGINEWORKS_LIFELINE_FD": str(theirs),
    }
    for name in ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"):  # the second would compile a tool anew at every start
        environment.pop(name, None)
    try:
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [str(job.python), str(job.script), str(job_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=(theirs,),
                start_new_session=True,
                cwd=job.work,
            )
    except OSError as error:
        os.close(ours)
        raise StageFailed(job.stage, "set_up", f"can't start {job.python} ({error.strerror})") from None
    finally:
        os.close(theirs)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also whatever a finished worker left running
        process.wait()
        os.close(ours)


def _follow(
    process: subprocess.Popen[bytes], events_file: Path, take: OnEvent, deadline: float, stop: threading.Event
) -> str:
    """Pass events on until the worker ends. Returns why it must be stopped, or ``""``."""
    with events_file.open("rb") as stream:
        pending = b""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=POLL_S)
            ended = process.returncode is not None
            *lines, pending = (pending + stream.read()).split(b"\n")
            for line in lines:
                with contextlib.suppress(json.JSONDecodeError):  # a line cut off by a full disk
                    take(json.loads(line))
            if ended:
                return ""
            if stop.is_set():
                return "cancelled"
            if time.monotonic() > deadline:
                return "timeout"


def _failure(
    job: WorkerJob, status: int, stopped: str, errors: list[Event], log_file: Path, *, oom_killed: bool
) -> StageFailed:
    if stopped == "cancelled":
        return StageFailed(job.stage, "cancelled", "stopped on request")
    if stopped == "timeout":
        return StageFailed(
            job.stage,
            "timeout",
            f"not finished after {job.timeout_s:.0f} s",
            hint="Raise timeout_minutes in the recipe",
        )
    reported = errors[-1] if errors else {}
    cause = str(reported.get("cause", "tool"))
    message = str(reported.get("message", "")) or _last_line(log_file) or f"exit status {status}"
    hint = str(reported.get("hint", ""))
    if cause == "disk_full" or (cause == "tool" and shutil.disk_usage(job.work).free < 32 << 20):
        return StageFailed(
            job.stage, "disk_full", f"the disk under {job.work} is full", hint="Free space and run again"
        )
    if status == -signal.SIGKILL and not reported:
        if oom_killed:
            cause, message = "out_of_memory", "the kernel killed the worker: out of memory"
        else:
            cause, message = "killed", "the worker was killed (SIGKILL), often by the kernel for want of memory"
    elif status < 0 and not reported:
        cause, message = "killed", f"the worker died of {signal.Signals(-status).name}"
    if cause in ("out_of_memory", "killed"):
        hint = hint or "Run again to go on from here; give it more memory, or fewer or shorter calibration samples"
    elif cause == "tool":
        hint = hint or f"The tool's own log: {_kept(log_file, job)}"
    return StageFailed(job.stage, cause, message, hint=hint)


def _last_line(log_file: Path) -> str:
    lines = [
        line.strip() for line in log_file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
    ]
    return lines[-1][:600] if lines else ""


def _kept(log_file: Path, job: WorkerJob) -> Path:
    """Keep the log where the next try finds it replaced, not removed."""
    kept = job.scratch.parent / f"{job.scratch.name}.log"
    shutil.copyfile(log_file, kept)
    return kept


def _kernel_kills() -> int:
    """Processes the kernel's out-of-memory killer has ended since boot (0 where the kernel does not say)."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
