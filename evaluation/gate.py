"""The accuracy gate: paired non-inferiority of a variant against the original, on the same documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from builders.integrity import Finding, read_integrity
from builders.run_stage import Job
from evaluation.paired import PairedTable, mcnemar_p, mean_bounds, non_inferiority_p, tango_bounds
from evaluation.verdict import TaskDrop, Verdict, write_verdict
from recipes.strict import Strict


class Sample(Strict):
    """The outcome of one document."""

    task: str
    doc_hash: str
    prompt_hash: str
    metric: str
    score: float
    loglikelihoods: tuple[float, ...] | None = None

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return (self.task, self.doc_hash, self.prompt_hash, self.metric)


def run(job: Job) -> None:
    """Stage function. Inputs: ``baseline``, ``candidate``, ``integrity``. Params: ``margin``, ``confidence``."""
    margin, confidence = float(job.params["margin"]), float(job.params["confidence"])
    errors = read_integrity(job.inputs["integrity"]).errors
    if errors:
        verdict = broken(errors, margin, confidence)
    else:
        verdict = judge(read_samples(job.inputs["baseline"]), read_samples(job.inputs["candidate"]), margin, confidence)
    write_verdict(job.output, verdict)


def read_samples(folder: Path) -> list[Sample]:
    with (folder / "samples.jsonl").open(encoding="utf-8") as lines:
        return [Sample.model_validate(json.loads(line)) for line in lines]


def broken(errors: Sequence[Finding], margin: float, confidence: float) -> Verdict:
    """The verdict on an output that fails its integrity check, whatever it would score."""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Verdict(outcome="ANOMALOUS", reason=f"integrity: {errors[0]}{more}", margin=margin, confidence=confidence)


def judge(baseline: Sequence[Sample], candidate: Sequence[Sample], margin: float, confidence: float) -> Verdict:
    """PASS if the upper bound on the drop is under the margin, FAIL if the lower bound is over it, else INCONCLUSIVE.

    ANOMALOUS if the two did not answer the same documents: then no difference between them means anything.
    """
    if difference := _first_difference(baseline, candidate):
        return Verdict(outcome="ANOMALOUS", reason=difference, margin=margin, confidence=confidence)
    before, after = [sample.score for sample in baseline], [sample.score for sample in candidate]
    n = len(before)
    drops = [b - c for b, c in zip(before, after, strict=True)]
    drop = sum(drops) / n
    binary = set(before) | set(after) <= {0.0, 1.0}
    table = PairedTable.of(before, after) if binary else None
    lower, upper = tango_bounds(table, confidence) if table else mean_bounds(drops, confidence)
    if upper < margin:
        outcome, reason = (
            "PASS",
            f"the drop is under {margin:.1%} with {confidence:.0%} confidence (at most {upper:.2%})",
        )
    elif lower > margin:
        outcome, reason = (
            "FAIL",
            f"the drop is over {margin:.1%} with {confidence:.0%} confidence (at least {lower:.2%})",
        )
    else:
        outcome, reason = (
            "INCONCLUSIVE",
            f"{n} documents can't tell a drop between {lower:.2%} and {upper:.2%} from {margin:.1%}",
        )
    return Verdict(
        outcome=outcome,
        reason=reason,
        margin=margin,
        confidence=confidence,
        documents=n,
        baseline=sum(before) / n,
        candidate=sum(after) / n,
        drop=drop,
        lower_bound=lower,
        upper_bound=upper,
        lost=table.lost if table else None,
        gained=table.gained if table else None,
        p_value=non_inferiority_p(table, margin) if table else None,
        mcnemar_p=mcnemar_p(table) if table else None,
        tasks=tuple(_by_task(baseline, candidate)),
    )


def _first_difference(baseline: Sequence[Sample], candidate: Sequence[Sample]) -> str:
    if not baseline or not candidate:
        return f"no documents: {len(baseline)} by the original, {len(candidate)} by the variant"
    for before, after in zip(baseline, candidate, strict=False):
        if before.identity != after.identity:
            return f"the original and the variant were not asked the same: {_named(before)} against {_named(after)}"
    if len(baseline) != len(candidate):
        return f"the original answered {len(baseline)} documents, the variant {len(candidate)}"
    return ""


def _named(sample: Sample) -> str:
    return f"{sample.task} document {sample.doc_hash[:8]} prompt {sample.prompt_hash[:8]} ({sample.metric})"


def _by_task(baseline: Sequence[Sample], candidate: Sequence[Sample]) -> list[TaskDrop]:
    found: list[TaskDrop] = []
    for task in sorted({sample.task for sample in baseline}):
        before = [sample for sample in baseline if sample.task == task]
        after = [sample.score for sample in candidate if sample.task == task]
        means = sum(sample.score for sample in before) / len(before), sum(after) / len(after)
        found.append(
            TaskDrop(
                task=task,
                metric=before[0].metric,
                documents=len(before),
                baseline=means[0],
                candidate=means[1],
                drop=means[0] - means[1],
            )
        )
    return found
