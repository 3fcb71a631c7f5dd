"""What a check finds. ``integrity.json`` holds all of it; any ``error`` makes the variant ANOMALOUS."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from recipes.strict import Strict

FILE = "integrity.json"


class Finding(Strict):
    """One thing that is not as it should be."""

    check: str
    subject: str
    """Layer or file."""
    seen: str
    wanted: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.check}: {self.subject}: {self.seen}; wanted {self.wanted}"


class Integrity(Strict):
    """All findings on one variant."""

    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")


def read_integrity(folder: Path) -> Integrity:
    return Integrity.model_validate_json((folder / FILE).read_bytes())


class Life(Strict):
    """What builders/workers/life.py saw of a checkpoint that was loaded and asked."""

    findings: tuple[Finding, ...]
    answers: dict[str, str]
    """Prompt → greedy answer."""


def read_life(folder: Path) -> Integrity:
    life = Life.model_validate_json((folder / "life.json").read_bytes())
    return Integrity(findings=life.findings)


def write_integrity(folder: Path, integrity: Integrity) -> None:
    (folder / FILE).write_text(integrity.model_dump_json(indent=1), encoding="utf-8")
