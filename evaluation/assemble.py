"""Stage function that turns a passed variant and its evidence into a release, ready to publish.

The output holds only what is new: ``release.json``, the model card, the serving line, the recipe. Weights and evidence
stay where they are; :func:`release_files` says which file of which artifact each path of the release is.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from artifacts.digest import canonical_json
from artifacts.manifest import FileEntry, Manifest, scan
from artifacts.release import Release, VerdictSummary
from artifacts.store import Artifact
from builders.run_stage import Job
from evaluation.model_card import model_card
from evaluation.verdict import read_verdict
from recipes.errors import StageFailed
from recipes.models import Recipe

RELEASE = "release.json"
PLACES = {
    "weights": "weights/",
    "integrity": "evaluation/",
    "gate": "evaluation/",
    "candidate": "evaluation/",
    "baseline": "evaluation/original/",
}
"""Input of the stage → where its files go in the release."""


@dataclass(frozen=True)
class Input:
    """An input artifact as this stage sees it."""

    path: Path
    manifest: Manifest


def run(job: Job) -> None:
    """Params: ``variant``, ``recipe``, ``source``, ``targets``. Inputs: see evaluation/stages.py."""
    verdict = read_verdict(job.inputs["gate"])
    if verdict.outcome != "PASS":
        raise StageFailed(job.stage, "bad_input", f"the gate says {verdict.outcome}: {verdict.reason}")
    recipe = Recipe.model_validate(job.params["recipe"])
    name: str = job.params["variant"]
    variant = recipe.variants[name]
    inputs = {
        place: Input(folder, Manifest.model_validate_json((folder.parent / "manifest.json").read_bytes()))
        for place, folder in job.inputs.items()
    }
    (job.output / "recipe.json").write_bytes(canonical_json(recipe) + b"\n")
    (job.output / "serve").mkdir()
    (job.output / "serve" / "vllm.sh").write_text(serve_script(recipe.model, name), encoding="utf-8")
    source: dict[str, JsonValue] = {**job.params["source"], "checkpoint": inputs["checkpoint"].manifest.digest}
    (job.output / "README.md").write_text(
        model_card(recipe, name, verdict, job.inputs["checkpoint"], source), encoding="utf-8"
    )
    release = Release(
        model=recipe.model,
        variant=name,
        scheme=variant.scheme,
        tool=variant.tool,
        recipe=recipe.model_dump(mode="json"),
        source=source,
        toolchains=job.params["toolchains"],
        calibration=inputs["calibration"].manifest.digest if "calibration" in inputs else None,
        targets=tuple(job.params["targets"]),
        verdict=VerdictSummary(
            outcome=verdict.outcome,
            drop=verdict.drop,
            upper_bound=verdict.upper_bound,
            margin=verdict.margin,
            confidence=verdict.confidence,
            documents=verdict.documents,
        ),
        files=_entries(inputs, scan(job.output)),
    )
    (job.output / RELEASE).write_text(release.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_release(folder: Path) -> Release:
    return Release.model_validate_json((folder / RELEASE).read_bytes())


def release_files(assembled: Artifact, inputs: Mapping[str, Artifact]) -> dict[str, Path]:
    """Path in the release → the file on this machine that holds it."""
    files = {entry.path: assembled.path / entry.path for entry in assembled.manifest.files if entry.path != RELEASE}
    for name, place in PLACES.items():
        files |= {place + entry.path: inputs[name].path / entry.path for entry in inputs[name].manifest.files}
    return files


def serve_script(model: str, variant: str) -> str:
    """The line that serves the release from its own directory."""
    name = shlex.quote(f"{model}-{variant}")
    lines = (
        "#!/bin/sh",
        "# Serves this release on port 8000; further options are passed on.",
        f'exec vllm serve "$(dirname "$0")/../weights" --served-model-name {name} "$@"',
    )
    return "\n".join(lines) + "\n"


def _entries(inputs: Mapping[str, Input], own: Manifest) -> tuple[FileEntry, ...]:
    entries = [
        entry.model_copy(update={"path": place + entry.path})
        for name, place in PLACES.items()
        for entry in inputs[name].manifest.files
    ]
    return tuple(sorted([*entries, *own.files], key=lambda entry: entry.path))
