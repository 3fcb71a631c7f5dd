"""The verdict on an artifact that could not be judged here, said as such: no score, and never PASS."""

from __future__ import annotations

from builders.integrity import read_integrity
from builders.run_stage import Job
from evaluation.gate import broken
from evaluation.verdict import Verdict, write_verdict


def run(job: Job) -> None:
    """Stage function. Inputs: ``integrity``. Params: ``margin``, ``confidence``, ``reason``."""
    margin, confidence = float(job.params["margin"]), float(job.params["confidence"])
    if errors := read_integrity(job.inputs["integrity"]).errors:
        write_verdict(job.output, broken(errors, margin, confidence))
        return
    reason = f"not evaluated: {job.params['reason']}"
    write_verdict(job.output, Verdict(outcome="NOT RUN", reason=reason, margin=margin, confidence=confidence))
