"""Show a running build: bars on a terminal, plain lines elsewhere. Everything goes to stderr; stdout is for results."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from builders.run_stage import OnStageEvent


@contextmanager
def shown(*, quiet: bool = False) -> Generator[OnStageEvent]:
    """A listener for stage events, shown until the block ends."""
    if quiet:
        yield lambda _stage, _event: None
    elif sys.stderr.isatty():
        with _bars() as listener:
            yield listener
    else:
        yield _lines()


@contextmanager
def bytes_shown(name: str, *, quiet: bool = False) -> Generator[Callable[[int, int], None]]:
    """A progress function in bytes, shown until the block ends."""
    with shown(quiet=quiet) as listener:
        yield lambda done, total: listener(
            name, {"event": "progress", "done": done, "total": total, "unit": "bytes", "message": ""}
        )


@contextmanager
def _bars() -> Generator[OnStageEvent]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(), TextColumn("{task.description:<20}"), BarColumn(bar_width=30), MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def listener(stage: str, event: dict[str, Any]) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=None, note="")
            task = tasks[stage]
            match event["event"]:
                case "progress":
                    progress.update(
                        task, completed=event["done"], total=event["total"], note=event["message"] or event["unit"]
                    )
                case "log":
                    progress.update(task, note=event["message"][:60])
                case "done":
                    progress.update(task, completed=1, total=1, note=event["message"])
                    progress.stop_task(task)
                case "failed":
                    progress.update(task, note=f"[red]failed[/] {event['message'][:60]}")
                    progress.stop_task(task)
                case _:
                    pass

        yield listener


def _lines() -> OnStageEvent:
    lock = threading.Lock()
    quarters: dict[str, int] = {}

    def say(stage: str, message: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {stage}: {message}", file=sys.stderr, flush=True)  # noqa: T201

    def listener(stage: str, event: dict[str, Any]) -> None:
        with lock:
            match event["event"]:
                case "progress" if event["total"]:
                    quarter = int(4 * event["done"] / event["total"])
                    if quarters.get(stage) != quarter:
                        quarters[stage] = quarter
                        say(stage, f"{event['done']} of {event['total']} {event['unit']} {event['message']}".rstrip())
                case "log" | "done":
                    say(stage, event["message"])
                case "failed":
                    say(stage, f"failed: {event['message']}")
                case _:
                    pass

    return listener
