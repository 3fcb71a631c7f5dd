"""The one exception family. The command line prints these without a traceback and exits with their ``exit_code``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, in the user's own terms."""

    where: str
    """A recipe field (``recipes/demo.yaml:12 variants.gptq.group_size``), an argument or a stage."""
    seen: str
    wanted: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.seen}; wanted {self.wanted}" if self.wanted else f"{self.where}: {self.seen}"
        return f"{text}. {self.hint}" if self.hint else text


class EngineworksError(Exception):
    """Work that was asked for rightly has failed (exit 1)."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}. {hint}" if hint else message)
        self.message = message
        self.hint = hint


class BadRequest(EngineworksError):
    """What was asked for can't be done as asked (exit 2): nothing expensive has been started."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem] | Problem) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class StageFailed(EngineworksError):
    """A stage started and did not finish. ``cause`` is one of the words of :data:`CAUSES`."""

    def __init__(self, stage: str, cause: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"{stage}: {message}", hint=hint)
        self.stage = stage
        self.cause = cause


CAUSES = ("out_of_memory", "disk_full", "killed", "timeout", "cancelled", "bad_input", "network", "set_up", "tool")

RETRYABLE = frozenset({"network"})
"""Causes that another try may cure. The others would fail again at the same cost."""


class StoreError(EngineworksError):
    """The build store can't be read or written."""


class RegistryError(EngineworksError):
    """The release registry can't be reached, read or written."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint naming the closest of ``known``, or all of them when none is close and they are few."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(names)}" if 0 < len(names) <= 20 else ""
