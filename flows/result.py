"""What a build came to."""

from __future__ import annotations

from artifacts.registry import Registry
from artifacts.storage import open_storage
from artifacts.store import Store
from builders.integrity import read_integrity
from evaluation.assemble import read_release
from evaluation.gate import broken
from evaluation.verdict import Verdict, read_verdict
from flows.plan import Plan
from recipes.strict import Strict


class VariantResult(Strict):
    """One row of the closing table."""

    variant: str
    scheme: str
    verdict: str
    """The gate's outcome, or ``FAILED`` when a stage before it failed."""
    reason: str
    release_id: str | None = None
    location: str | None = None
    drop: float | None = None
    lower_bound: float | None = None
    upper_bound: float | None = None
    margin: float | None = None
    bytes: int | None = None
    """Of the quantized checkpoint's files."""


class StageCounts(Strict):
    ran: int
    cached: int


class BuildResult(Strict):
    """The ``--json`` document of ``engineworks build``."""

    model: str
    original_bytes: int | None
    releases: tuple[VariantResult, ...]
    stages: StageCounts

    @property
    def ok(self) -> bool:
        """Every variant passed and is published."""
        return all(row.release_id is not None for row in self.releases)


def collect(plan: Plan, digests: dict[str, str], failures: dict[str, str], ran: int, store: Store) -> BuildResult:
    """From the artifacts of the finished stages (by stage name) and the messages of those that failed."""
    checkpoint = digests.get("checkpoint")
    return BuildResult(
        model=plan.recipe.model,
        original_bytes=store.artifact(checkpoint).manifest.size if checkpoint else None,
        releases=tuple(_row(plan, name, digests, failures, store) for name in plan.recipe.variants),
        stages=StageCounts(ran=ran, cached=sum(stage.status == "cached" for stage in plan.stages)),
    )


def _row(plan: Plan, name: str, digests: dict[str, str], failures: dict[str, str], store: Store) -> VariantResult:
    scheme = plan.recipe.variants[name].scheme
    weights = digests.get(f"quantize:{name}")
    size = store.artifact(weights).manifest.size if weights else None
    failed = next((failures[stage] for stage in failures if stage.partition(":")[2] == name), "")
    verdict = _verdict(plan, name, digests, store)
    if verdict is None or (failed and verdict.outcome == "PASS"):
        reason = failed or next(iter(failures.values()), "not built")
        return VariantResult(variant=name, scheme=scheme, verdict="FAILED", reason=reason, bytes=size)
    ref = read_release(store.artifact(digests[f"release:{name}"]).path).ref if f"release:{name}" in digests else None
    return VariantResult(
        variant=name,
        scheme=scheme,
        verdict=verdict.outcome,
        reason=verdict.reason,
        release_id=ref.release_id if ref else None,
        location=Registry(open_storage(plan.registry)).location(ref) if ref else None,
        drop=verdict.drop,
        lower_bound=verdict.lower_bound,
        upper_bound=verdict.upper_bound,
        margin=verdict.margin,
        bytes=size,
    )


def _verdict(plan: Plan, name: str, digests: dict[str, str], store: Store) -> Verdict | None:
    if gate := digests.get(f"gate:{name}"):
        return read_verdict(store.artifact(gate).path)
    if integrity := digests.get(f"integrity:{name}"):
        errors = read_integrity(store.artifact(integrity).path).errors
        if errors:
            gate_params = plan.recipe.evaluation.gate
            return broken(errors, plan.recipe.variants[name].margin or gate_params.margin, gate_params.confidence)
    return None
