"""What a build would do: stages with keys, what is stored already, and everything that can be refused now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from artifacts.home import Home
from artifacts.registry import Registry
from artifacts.stage import Stage, keys_of
from artifacts.storage import open_storage
from artifacts.store import Store
from builders.estimates import (
    Estimate,
    estimate_convert,
    estimate_evaluate,
    estimate_fetch,
    estimate_quantize,
)
from builders.integrity import read_integrity, read_life
from builders.model_facts import ModelFacts
from builders.preflight import problems_with
from builders.resolve import ResolvedSource, resolve_source
from builders.run_stage import find_result
from builders.stages import builder_stages
from builders.trtllm.line import cards_of, engine_lines, is_served_as_checkpoint
from builders.trtllm.notes import commands
from evaluation.assemble import read_release
from evaluation.power import problems_with_power
from evaluation.stages import ORIGINAL, evaluation_stages
from evaluation.task_names import known_tasks
from evaluation.verdict import PUBLISHED, read_verdict
from flows.notes import notes_for
from recipes.errors import BadRequest, Problem, nearest
from recipes.loading import load_recipe
from recipes.models import Recipe
from recipes.strict import Strict
from recipes.targets import TargetCard, load_card

CHECKS = {"integrity": read_integrity, "life": read_life}
"""Kind of a stage that checks → how its findings are read."""
Status = Literal["cached", "todo", "skipped"]


class PlannedStage(Strict):
    """A stage and where it stands."""

    stage: Stage
    key: str
    status: Status
    """``skipped``: a stored verdict or integrity check stops this variant before it."""
    artifact: str | None = None
    """Digest of the stored artifact, when cached."""
    estimate: Estimate | None = None

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def line(self) -> str | None:
        """The variant, or variant and engine target, that it belongs to. None: shared by all."""
        return self.name.partition(":")[2] or None


class Line(Strict):
    """What ends in one release: a variant's weights, or a variant's engine for one target."""

    name: str
    variant: str
    targets: tuple[str, ...]


class Plan(Strict):
    """A build that has been found possible."""

    recipe: Recipe
    source: ResolvedSource
    registry: str
    stages: tuple[PlannedStage, ...]
    """In topological order."""
    lines: tuple[Line, ...] = ()
    commands: dict[str, str] = {}
    """Stage → the command that it runs, for stages that run a vendor's tool."""
    notes: tuple[str, ...] = ()

    @property
    def todo(self) -> tuple[PlannedStage, ...]:
        return tuple(stage for stage in self.stages if stage.status == "todo")


def make_plan(recipe_path: Path, overrides: tuple[str, ...], home: Home, registry: str | None = None) -> Plan:
    """Read, resolve and check. Raises :class:`BadRequest` with every problem; starts nothing expensive."""
    recipe = load_recipe(recipe_path, overrides)
    cards: list[TargetCard] = []
    problems = _task_problems(recipe)
    for name in dict.fromkeys(recipe.targets):
        try:
            cards.append(load_card(name))
        except BadRequest as error:
            problems += error.problems
    problems += problems_with_power(recipe)
    if problems:
        raise BadRequest(problems)
    source = resolve_source(recipe.source, home.root)
    if problems := problems_with(recipe, cards, source.facts):
        raise BadRequest(problems)
    url = registry or recipe.publication.registry or home.registry_url
    stages = plan_stages(recipe, cards, source, home, url)
    return Plan(
        recipe=recipe,
        source=source,
        registry=url,
        stages=stages,
        lines=tuple(lines_of(recipe, cards)),
        commands=commands(stage.stage for stage in stages),
        notes=notes_for(recipe, cards, source.facts),
    )


def lines_of(recipe: Recipe, cards: Sequence[TargetCard]) -> list[Line]:
    weights = [
        Line(
            name=name,
            variant=name,
            targets=tuple(card.name for card in cards_of(variant, cards) if card.runtime != "engine"),
        )
        for name, variant in recipe.variants.items()
        if is_served_as_checkpoint(recipe, name, cards)
    ]
    engines = [
        Line(name=line.name, variant=line.variant, targets=(line.card.name,)) for line in engine_lines(recipe, cards)
    ]
    return weights + engines


def plan_stages(
    recipe: Recipe, cards: Sequence[TargetCard], source: ResolvedSource, home: Home, registry: str
) -> tuple[PlannedStage, ...]:
    """Every stage of the build with its key and status, from what the store and the registry hold now."""
    made = builder_stages(recipe, cards, source, home.root)
    stages = made + evaluation_stages(recipe, cards, source, home.root, made)
    stages += tuple(publish_stage(line.name, registry) for line in lines_of(recipe, cards))
    store, keys = Store(home.store), keys_of(stages)
    digests: dict[str, str] = {}
    stopped: set[str] = set()
    planned: list[PlannedStage] = []
    for stage in stages:
        line = stage.name.partition(":")[2]
        inputs = {name: digests[source] for name, source in stage.inputs.items() if source in digests}
        artifact: str | None = None
        if line in stopped:
            status: Status = "skipped"
        elif stage.kind == "publish":
            status = "cached" if _is_published(inputs.get("release"), registry, store) else "todo"
        elif found := find_result(stage, keys[stage.name], inputs, store):
            status, artifact = "cached", found.record.artifact
            digests[stage.name] = artifact
            if _stops(stage, artifact, store):
                stopped.add(line)
        else:
            status = "todo"
        planned.append(
            PlannedStage(
                stage=stage,
                key=keys[stage.name],
                status=status,
                artifact=artifact,
                estimate=_estimate(stage, recipe, source.facts) if status == "todo" else None,
            )
        )
    return tuple(planned)


def publish_stage(line: str, registry: str) -> Stage:
    """The one stage whose result lies in the registry, not in the store."""
    return Stage(
        name=f"publish:{line}",
        kind="publish",
        entry="flows.publish:publish",
        params={"registry": registry},
        inputs={"release": f"release:{line}"},
        code="",
    )


def stopped_by(stage: Stage, folder: Path) -> str:
    """Why a finished stage ends its variant's build: a failed integrity check or gate. ``""`` when it does not."""
    if stage.kind in CHECKS and (errors := CHECKS[stage.kind](folder).errors):
        return f"ANOMALOUS: {errors[0]}"
    if stage.kind == "gate" and (verdict := read_verdict(folder)).outcome not in PUBLISHED:
        return f"{verdict.outcome}: {verdict.reason}"
    return ""


def _stops(stage: Stage, artifact: str, store: Store) -> bool:
    return stage.kind in (*CHECKS, "gate") and bool(stopped_by(stage, store.artifact(artifact).path))


def _is_published(release: str | None, registry: str, store: Store) -> bool:
    if release is None:
        return False
    return Registry(open_storage(registry)).has(read_release(store.artifact(release).path).ref)


def _estimate(stage: Stage, recipe: Recipe, facts: ModelFacts) -> Estimate | None:
    match stage.kind:
        case "quantize":
            variant = recipe.variants[stage.name.partition(":")[2]]
            return estimate_quantize(variant, facts, recipe.calibration.sequence_length)
        case "life":
            return estimate_evaluate(facts)
        case "convert":
            return estimate_convert(facts)
        case "checkpoint" | "gguf":
            return estimate_fetch(facts)
        case "evaluate":
            return estimate_evaluate(facts)
        case _:
            return None


def _task_problems(recipe: Recipe) -> list[Problem]:
    include = recipe.evaluation.include
    if include is not None and not include.is_dir():
        return [Problem("evaluation.include", f"no directory {include}", "a folder of lm-eval task files")]
    known = known_tasks(include)
    return [
        Problem(f"evaluation.tasks.{place}", repr(name), "a task that lm-eval knows", nearest(name, known))
        for place, name in enumerate(recipe.evaluation.tasks)
        if name not in known
    ]


__all__ = [
    "ORIGINAL",
    "Plan",
    "PlannedStage",
    "make_plan",
    "plan_stages",
    "publish_stage",
    "stopped_by",
]
