"""What a build came to."""

from __future__ import annotations

from artifacts.registry import Registry
from artifacts.storage import open_storage
from artifacts.store import Store
from evaluation.assemble import read_release
from evaluation.gate import broken
from evaluation.verdict import PUBLISHED, Verdict, read_verdict
from flows.plan import CHECKS, Line, Plan
from recipes.strict import Strict


class LineResult(Strict):
    """One row of the closing table."""

    line: str
    """The variant, or ``VARIANT.TARGET`` for an engine."""
    variant: str
    targets: tuple[str, ...]
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
    """Of the quantized checkpoint's files, or the engine's."""
    serve: str | None = None
    """Command that serves the release where it is."""


class StageCounts(Strict):
    ran: int
    cached: int


class BuildResult(Strict):
    """The ``--json`` document of ``engineworks build``."""

    model: str
    original_bytes: int | None
    releases: tuple[LineResult, ...]
    stages: StageCounts

    @property
    def ok(self) -> bool:
        """Everything is published."""
        return all(row.release_id is not None for row in self.releases)


def collect(plan: Plan, digests: dict[str, str], failures: dict[str, str], ran: int, store: Store) -> BuildResult:
    """From the artifacts of the finished stages (by stage name) and the messages of those that failed."""
    checkpoint = digests.get("checkpoint")
    return BuildResult(
        model=plan.recipe.model,
        original_bytes=store.artifact(checkpoint).manifest.size if checkpoint else None,
        releases=tuple(_row(plan, line, digests, failures, store) for line in plan.lines),
        stages=StageCounts(ran=ran, cached=sum(stage.status == "cached" for stage in plan.stages)),
    )


def _row(plan: Plan, line: Line, digests: dict[str, str], failures: dict[str, str], store: Store) -> LineResult:
    name, scheme = line.name, plan.recipe.variants[line.variant].scheme
    made = digests.get(f"quantize:{name}") or digests.get(f"engine:{name}")
    row = LineResult(
        line=name,
        variant=line.variant,
        targets=line.targets,
        scheme=scheme,
        verdict="FAILED",
        reason="",
        bytes=store.artifact(made).manifest.size if made else None,
    )
    failed = next((failures[stage] for stage in failures if stage.partition(":")[2] == name), "")
    verdict = _verdict(plan, line, digests, store)
    if verdict is None or (failed and verdict.outcome in PUBLISHED):
        return row.model_copy(update={"reason": failed or next(iter(failures.values()), "not built")})
    release = digests.get(f"release:{name}")
    ref = read_release(store.artifact(release).path).ref if release else None
    location = Registry(open_storage(plan.registry)).location(ref) if ref else None
    return row.model_copy(
        update={
            "verdict": verdict.outcome,
            "reason": verdict.reason,
            "release_id": ref.release_id if ref else None,
            "location": location,
            "drop": verdict.drop,
            "lower_bound": verdict.lower_bound,
            "upper_bound": verdict.upper_bound,
            "margin": verdict.margin,
            "serve": _serve(line, location, scheme) if location else None,
        }
    )


def _serve(line: Line, location: str, scheme: str) -> str:
    place = location.removeprefix("file://")
    if scheme == "gguf":
        return f"sh {place}/serve/llama.sh"
    return f"sh {place}/serve/trtllm-serve.sh" if line.name != line.variant else f"vllm serve {place}/weights"


def _verdict(plan: Plan, line: Line, digests: dict[str, str], store: Store) -> Verdict | None:
    if gate := digests.get(f"gate:{line.name}"):
        return read_verdict(store.artifact(gate).path)
    for kind, read in CHECKS.items():
        check = digests.get(f"{kind}:{line.name}")
        if check and (errors := read(store.artifact(check).path).errors):
            gate_params = plan.recipe.evaluation.gate
            return broken(
                errors, plan.recipe.variants[line.variant].margin or gate_params.margin, gate_params.confidence
            )
    return None
