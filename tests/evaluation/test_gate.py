"""The gate's four outcomes."""

from __future__ import annotations

import random

from evaluation.gate import Sample, judge


def samples(scores: list[float], task: str = "t") -> list[Sample]:
    return [
        Sample(task=task, doc_hash=f"{i:04}", prompt_hash="p", metric="acc", score=score)
        for i, score in enumerate(scores)
    ]


def flipped(scores: list[float], lost: int, gained: int, seed: int = 0) -> list[float]:
    rng, out = random.Random(seed), list(scores)
    for i in rng.sample([i for i, s in enumerate(scores) if s == 1], lost):
        out[i] = 0.0
    for i in rng.sample([i for i, s in enumerate(scores) if s == 0], gained):
        out[i] = 1.0
    return out


BASE = [1.0] * 600 + [0.0] * 400


def test_an_identical_copy_passes() -> None:
    verdict = judge(samples(BASE), samples(BASE), 0.02, 0.95)
    assert (verdict.outcome, verdict.drop, verdict.lost, verdict.mcnemar_p) == ("PASS", 0.0, 0, 1.0)


def test_a_broken_variant_fails() -> None:
    verdict = judge(samples(BASE), samples(flipped(BASE, 150, 20)), 0.02, 0.95)
    assert verdict.outcome == "FAIL"
    assert verdict.lower_bound is not None
    assert verdict.lower_bound > 0.02


def test_noise_as_large_as_the_margin_is_inconclusive() -> None:
    verdict = judge(samples(BASE), samples(flipped(BASE, 60, 45)), 0.02, 0.95)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "can't tell" in verdict.reason


def test_other_documents_are_anomalous() -> None:
    other = samples(BASE)
    other[3] = other[3].model_copy(update={"prompt_hash": "another"})
    verdict = judge(samples(BASE), other, 0.02, 0.95)
    assert verdict.outcome == "ANOMALOUS"
    assert "0003" in verdict.reason
    assert judge(samples(BASE), samples(BASE[:-1]), 0.02, 0.95).outcome == "ANOMALOUS"
    assert judge([], [], 0.02, 0.95).outcome == "ANOMALOUS"


def test_tasks_are_reported_and_pooled() -> None:
    baseline = samples([1.0] * 50, "a") + samples([1.0] * 50, "b")
    candidate = samples([1.0] * 50, "a") + samples([0.0] * 5 + [1.0] * 45, "b")
    verdict = judge(baseline, candidate, 0.2, 0.95)
    assert verdict.drop == 0.05
    assert [(task.task, round(task.drop, 3)) for task in verdict.tasks] == [("a", 0.0), ("b", 0.1)]
