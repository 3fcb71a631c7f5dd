"""What the gate finds."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from recipes.strict import Strict

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "ANOMALOUS", "NOT RUN"]
"""``NOT RUN``: nothing here could judge it. It may be published, and not promoted to production."""
PUBLISHED = ("PASS", "NOT RUN")
FILE = "verdict.json"


class TaskDrop(Strict):
    """One task of the pooled comparison."""

    task: str
    metric: str
    documents: int
    baseline: float
    candidate: float
    drop: float


class Verdict(Strict):
    """Whether a variant may be published, and on what grounds."""

    outcome: Outcome
    reason: str
    """One sentence."""
    margin: float
    confidence: float
    documents: int = 0
    baseline: float | None = None
    """Mean score of the original over all documents."""
    candidate: float | None = None
    drop: float | None = None
    """``baseline - candidate``."""
    lower_bound: float | None = None
    """One-sided lower bound on the true drop."""
    upper_bound: float | None = None
    """One-sided upper bound on the true drop. Under the margin: PASS."""
    lost: int | None = None
    """Documents right by the original only (for right-or-wrong metrics)."""
    gained: int | None = None
    """Documents right by the variant only."""
    p_value: float | None = None
    """One-sided, of "the drop is at least the margin"."""
    mcnemar_p: float | None = None
    """Exact, two-sided, of "no difference"."""
    tasks: tuple[TaskDrop, ...] = ()


def read_verdict(folder: Path) -> Verdict:
    return Verdict.model_validate_json((folder / FILE).read_bytes())


def write_verdict(folder: Path, verdict: Verdict) -> None:
    (folder / FILE).write_text(verdict.model_dump_json(indent=1) + "\n", encoding="utf-8")
