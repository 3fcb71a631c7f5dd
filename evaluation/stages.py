"""The stages of this room: tasks, evaluations, verdicts, and what goes into a release."""

from __future__ import annotations

from pathlib import Path

from pydantic import JsonValue

from artifacts.stage import Stage
from builders.resolve import ResolvedSource
from builders.stages import data_file_stage, function_stage, worker_stage
from evaluation.task_names import EMBEDDED
from recipes.models import Recipe
from recipes.variants import needs_calibration

ORIGINAL = "original"


def evaluation_stages(recipe: Recipe, source: ResolvedSource, home: Path) -> tuple[Stage, ...]:
    """Evaluate the original once and every variant, judge, and assemble releases; in topological order."""
    stages: list[Stage] = []
    inputs: dict[str, str] = {}
    if embedded := [name for name in recipe.evaluation.tasks if name in EMBEDDED]:
        stages.append(
            worker_stage(
                "tasks",
                "evaluation/workers/build_tasks.py",
                home,
                params={"tasks": embedded, "seed": 0},  # pyright: ignore[reportArgumentType]
                inputs={},
                helpers=("builders/workers/pydoc_corpus.py",),
            )
        )
        inputs["tasks"] = "tasks"
    if recipe.evaluation.include is not None:
        stages.append(data_file_stage("include", recipe.evaluation.include))
        inputs["include"] = "include"
    stages.append(_evaluate_stage(ORIGINAL, "checkpoint", (), inputs, recipe, home))
    for name in recipe.variants:
        stages += [
            _evaluate_stage(name, f"quantize:{name}", (f"integrity:{name}",), inputs, recipe, home),
            _gate_stage(name, recipe),
            _release_stage(name, recipe, source, stages),
        ]
    return tuple(stages)


def _evaluate_stage(
    name: str, checkpoint: str, after: tuple[str, ...], inputs: dict[str, str], recipe: Recipe, home: Path
) -> Stage:
    evaluation = recipe.evaluation
    params: dict[str, JsonValue] = evaluation.model_dump(mode="json", exclude={"include", "gate", "timeout_minutes"})
    return worker_stage(
        f"evaluate:{name}",
        "evaluation/workers/lm_eval_run.py",
        home,
        params=params,
        inputs={"checkpoint": checkpoint, **inputs},
        after=after,
        timeout_s=evaluation.timeout_minutes * 60,
    )


def _gate_stage(name: str, recipe: Recipe) -> Stage:
    gate, variant = recipe.evaluation.gate, recipe.variants[name]
    return function_stage(
        f"gate:{name}",
        "evaluation.gate:run",
        params={"margin": variant.margin or gate.margin, "confidence": gate.confidence},
        inputs={
            "baseline": f"evaluate:{ORIGINAL}",
            "candidate": f"evaluate:{name}",
            "integrity": f"integrity:{name}",
        },
        helpers=("evaluation/paired.py", "evaluation/verdict.py"),
    )


def _release_stage(name: str, recipe: Recipe, source: ResolvedSource, before: list[Stage]) -> Stage:
    variant = recipe.variants[name]
    inputs = {
        "checkpoint": "checkpoint",
        "weights": f"quantize:{name}",
        "integrity": f"integrity:{name}",
        "baseline": f"evaluate:{ORIGINAL}",
        "candidate": f"evaluate:{name}",
        "gate": f"gate:{name}",
    }
    if needs_calibration(variant):
        inputs["calibration"] = "calibration"
    return function_stage(
        f"release:{name}",
        "evaluation.assemble:run",
        params={
            "variant": name,
            "recipe": recipe.model_dump(mode="json", exclude={"publication"}),
            "source": {"kind": source.kind, **source.params},
            "targets": list(variant.targets or recipe.targets),
            "toolchains": {stage.toolchain: stage.pins for stage in before if stage.toolchain},
        },
        inputs=inputs,
        helpers=("artifacts/release.py", "evaluation/model_card.py"),
    )
