"""Running a worker: events, causes of failure, and that nothing of it outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.worker_process import Event, WorkerJob, run_worker_process
from recipes.errors import StageFailed

PROLOGUE = "from worker_api import Events, Job, Refusal, run_worker\nimport os, signal, subprocess, time\n"
MakeJob = Callable[..., WorkerJob]


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    def make(body: str, on_event: Callable[[Event], None] = lambda _event: None, timeout_s: float = 60) -> WorkerJob:
        script = tmp_path / "worker.py"
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        script.write_text(f"{PROLOGUE}def work(job: Job, events: Events) -> None:\n{lines}\nrun_worker(work)\n")
        for name in ("output", "scratch", "work"):
            (tmp_path / name).mkdir(exist_ok=True)
        return WorkerJob(
            stage="stage",
            python=Path(sys.executable),
            script=script,
            params={"n": 3},
            inputs={},
            output=tmp_path / "output",
            scratch=tmp_path / "scratch",
            work=tmp_path / "work",
            threads=1,
            timeout_s=timeout_s,
            on_event=on_event,
        )

    return make


def failure(job: WorkerJob) -> StageFailed:
    with pytest.raises(StageFailed) as failed:
        run_worker_process(job)
    return failed.value


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"not within 20 s: {what}"
        time.sleep(0.02)


def test_output_events_and_metrics(make_job: MakeJob, tmp_path: Path) -> None:
    events: list[Event] = []
    body = (
        "events.progress(1, job.params['n'], 'layers')\nevents.metric('loss', 2.5)\n(job.output / 'x').write_text('y')"
    )
    metrics = run_worker_process(make_job(body, events.append))
    assert metrics["loss"] == 2.5
    assert metrics["seconds"] > 0
    assert 1e6 < metrics["peak_rss_bytes"] < 1e9
    assert [event.get("name", event["event"]) for event in events] == ["progress", "loss", "peak_rss_bytes"]
    assert (tmp_path / "output" / "x").read_text() == "y"


@pytest.mark.parametrize(
    ("body", "cause", "says"),
    [
        ("raise Refusal('group_size: 128', 'Use 64')", "bad_input", "group_size: 128. Use 64"),
        ("raise MemoryError()", "out_of_memory", "MemoryError"),
        ("raise OSError(28, 'No space left on device')", "disk_full", "disk"),
        ("raise KeyError('x')", "tool", "KeyError: 'x'"),
        ("os._exit(3)", "tool", "exit status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed", "SIGSEGV"),
    ],
)
def test_causes(make_job: MakeJob, body: str, cause: str, says: str) -> None:
    failed = failure(make_job(body))
    assert failed.cause == cause
    assert says in str(failed)


def test_a_kill_by_the_kernel_is_out_of_memory(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter([4, 5])
    monkeypatch.setattr("builders.worker_process._kernel_kills", lambda: next(kills))
    failed = failure(make_job("os.kill(os.getpid(), signal.SIGKILL)"))
    assert failed.cause == "out_of_memory"


def test_the_time_limit_ends_the_whole_group(make_job: MakeJob, tmp_path: Path) -> None:
    body = (
        "child = subprocess.Popen(['sleep', '600'])\n(job.scratch / 'pid').write_text(str(child.pid))\ntime.sleep(600)"
    )
    failed = failure(make_job(body, timeout_s=2))
    assert failed.cause == "timeout"
    pid = int((tmp_path / "scratch" / "pid").read_text())
    wait_until(lambda: gone(pid), "the worker's child ends")


def test_stop_ends_it(make_job: MakeJob) -> None:
    job = make_job("events.log('started')\ntime.sleep(600)")
    job.on_event = lambda _event: job.stop.set()
    assert failure(job).cause == "cancelled"


def test_a_worker_dies_with_its_parent(make_job: MakeJob, tmp_path: Path) -> None:
    """Not even SIGKILL, which the parent can't answer, leaves a worker or its children behind."""
    body = "(job.scratch / 'pid').write_text(str(os.getpid()))\ntime.sleep(600)"
    job = make_job(body)
    fields = {name: str(getattr(job, name)) for name in ("python", "script", "output", "scratch", "work")}
    parent_code = f"""
import json, sys
from pathlib import Path
from builders.worker_process import WorkerJob, run_worker_process
paths = {{name: Path(value) for name, value in json.loads({json.dumps(json.dumps(fields))}).items()}}
run_worker_process(WorkerJob(stage="s", params={{}}, inputs={{}}, threads=1, timeout_s=600, on_event=print, **paths))
"""
    parent = subprocess.Popen([sys.executable, "-c", parent_code], cwd=Path(__file__).parents[2])
    pid_file = tmp_path / "scratch" / "pid"
    wait_until(lambda: pid_file.exists() and bool(pid_file.read_text()), "the worker starts")
    pid = int(pid_file.read_text())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_until(lambda: gone(pid), "the worker ends")


def test_events_may_come_from_threads(make_job: MakeJob) -> None:
    events: list[Event] = []
    body = "\n".join(
        [
            "import threading",
            "threads = [threading.Thread(target=lambda: [events.log('x' * 500) for _ in range(50)]) for _ in range(8)]",
            "[thread.start() for thread in threads]",
            "[thread.join() for thread in threads]",
        ]
    )
    run_worker_process(make_job(body, events.append))
    assert len([event for event in events if event["event"] == "log"]) == 400
    assert threading.active_count() < 20
