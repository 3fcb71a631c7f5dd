"""Has this machine the room and the memory for a plan?

A plan may be made for another machine; a build needs them here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from builders.estimates import in_words
from builders.workers.memory import SETTING, memory_limit
from flows.plan import Plan
from recipes.errors import Problem


def problems_with_machine(plan: Plan, store: Path) -> list[Problem]:
    """What stops a build before it starts."""
    return [*_disk(plan, store), *_memory(plan)]


def memory_note(plan: Plan) -> str:
    """What will be slower than it could be. ``""`` if nothing."""
    limit = memory_limit()
    slow = [
        stage.name
        for stage in plan.todo
        if stage.estimate and stage.estimate.least_bytes <= limit < stage.estimate.memory_bytes
    ]
    if not slow:
        return ""
    return f"{', '.join(slow)}: more weights than memory ({in_words(limit)}), so they are read from disk in turn"


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _disk(plan: Plan, store: Path) -> Iterator[Problem]:
    needed = sum(stage.estimate.output_bytes for stage in plan.stages if stage.estimate)
    free = shutil.disk_usage(store).free
    if needed > free:
        yield Problem(
            "disk",
            f"{in_words(free)} free under {store}",
            f"about {in_words(needed)} for the stages to run",
            "Free space, run `engineworks store gc`, or set ENGINEWORKS_HOME to a larger disk",
        )


def _memory(plan: Plan) -> Iterator[Problem]:
    limit = memory_limit()
    for stage in plan.todo:
        if stage.estimate and stage.estimate.least_bytes > limit:
            yield Problem(
                "memory",
                f"{in_words(limit)} here",
                f"about {in_words(stage.estimate.least_bytes)} for {stage.name}",
                f"Use a larger machine, or set {SETTING} to what it may really take",
            )
