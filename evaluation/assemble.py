"""Stage function that turns a passed variant and its evidence into a release, ready to publish.

The output holds only what is new: ``release.json``, the model card, the serving line, the recipe. Weights and evidence
stay where they are; :func:`release_files` says which file of which artifact each path of the release is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from artifacts.digest import canonical_json
from artifacts.manifest import FileEntry, Manifest, scan
from artifacts.release import Release, VerdictSummary
from artifacts.store import Artifact
from builders.run_stage import Job
from builders.serving.scripts import (
    OPTIONS_FILE,
    llama_script,
    mlc_script,
    trtllm_options,
    trtllm_serve_script,
    vllm_script,
)
from evaluation.model_card import model_card
from evaluation.verdict import PUBLISHED, Verdict, read_verdict
from recipes.errors import StageFailed
from recipes.models import Recipe
from recipes.variants import Awq, Gguf

RELEASE = "release.json"
PLACES = {
    "weights": "weights/",
    "engine": "",
    "serve": "",
    "integrity": "evaluation/",
    "life": "evaluation/",
    "gate": "evaluation/",
    "candidate": "evaluation/",
    "baseline": "evaluation/original/",
    "benchmark": "evaluation/",
}
"""Input of the stage → where its files go in the release."""


@dataclass(frozen=True)
class Input:
    """An input artifact as this stage sees it."""

    path: Path
    manifest: Manifest


def run(job: Job) -> None:
    """Params and inputs: see evaluation/stages.py."""
    verdict = read_verdict(job.inputs["gate"])
    if verdict.outcome not in PUBLISHED:
        raise StageFailed(job.stage, "bad_input", f"the gate says {verdict.outcome}: {verdict.reason}")
    recipe = Recipe.model_validate(job.params["recipe"])
    inputs = read_inputs(job)
    name: str = job.params["variant"]
    _write_launch_files(job, recipe)
    common = write_common(job, inputs, recipe, verdict)
    release = Release(
        **common,
        variant=name,
        calibration=inputs["calibration"].manifest.digest if "calibration" in inputs else None,
        files=entries(inputs, scan(job.output)),
    )
    write_release(job, release)


def read_inputs(job: Job) -> dict[str, Input]:
    return {
        place: Input(folder, Manifest.model_validate_json((folder.parent / "manifest.json").read_bytes()))
        for place, folder in job.inputs.items()
    }


def write_common(job: Job, inputs: Mapping[str, Input], recipe: Recipe, verdict: Verdict) -> dict[str, Any]:
    """The recipe and the model card as files, and the claims that every kind of release makes."""
    (job.output / "recipe.json").write_bytes(canonical_json(recipe) + b"\n")
    source: dict[str, JsonValue] = {**job.params["source"], "checkpoint": inputs["checkpoint"].manifest.digest}
    name: str = job.params["variant"]
    card = model_card(
        recipe,
        name,
        job.params["tool"],
        verdict,
        job.inputs["checkpoint"],
        source,
        job.params["targets"],
        engine="engine" in inputs,
    )
    (job.output / "README.md").write_text(card, encoding="utf-8")
    return {
        "model": recipe.model,
        "scheme": recipe.variants[name].scheme,
        "tool": job.params["tool"],
        "recipe": recipe.model_dump(mode="json"),
        "source": source,
        "toolchains": job.params["toolchains"],
        "targets": tuple(job.params["targets"]),
        "verdict": VerdictSummary(
            outcome=verdict.outcome,
            drop=verdict.drop,
            upper_bound=verdict.upper_bound,
            margin=verdict.margin,
            confidence=verdict.confidence,
            documents=verdict.documents,
        ),
    }


def write_release(job: Job, release: Release) -> None:
    (job.output / RELEASE).write_text(release.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_release(folder: Path) -> Release:
    return Release.model_validate_json((folder / RELEASE).read_bytes())


def release_files(assembled: Artifact, inputs: Mapping[str, Artifact]) -> dict[str, Path]:
    """Path in the release → the file on this machine that holds it."""
    files = {entry.path: assembled.path / entry.path for entry in assembled.manifest.files if entry.path != RELEASE}
    for name, place in PLACES.items():
        if name not in inputs:
            continue
        files |= {place + entry.path: inputs[name].path / entry.path for entry in inputs[name].manifest.files}
    return files


def _write_launch_files(job: Job, recipe: Recipe) -> None:
    """One script a server, each serving the release from its own directory."""
    folder = job.output / "serve"
    folder.mkdir()
    served_name = f"{recipe.model}-{job.params['variant']}"
    ranks = {"tensor_parallel": job.params["tensor_parallel"], "pipeline_parallel": job.params["pipeline_parallel"]}
    variant = recipe.variants[job.params["variant"]]
    if isinstance(variant, Gguf):
        (file,) = job.inputs["weights"].glob("*.gguf")
        (folder / "llama.sh").write_text(llama_script(file.name, recipe.serving), encoding="utf-8")
        return
    (folder / "vllm.sh").write_text(vllm_script(served_name, recipe.serving, **ranks), encoding="utf-8")
    if isinstance(variant, Awq) and variant.tool == "autoawq":
        (folder / "mlc-llm.sh").write_text(mlc_script(served_name, "q4f16_autoawq"), encoding="utf-8")
    if job.params["pytorch_backend"]:
        script = trtllm_serve_script(recipe.serving, backend="pytorch", version=job.params["tensorrt_llm"], **ranks)
        (folder / "trtllm-serve.sh").write_text(script, encoding="utf-8")
        (folder / OPTIONS_FILE).write_text(trtllm_options(recipe.serving, backend="pytorch"), encoding="utf-8")


def entries(inputs: Mapping[str, Input], own: Manifest) -> tuple[FileEntry, ...]:
    entries = [
        entry.model_copy(update={"path": place + entry.path})
        for name, place in PLACES.items()
        if name in inputs
        for entry in inputs[name].manifest.files
    ]
    return tuple(sorted([*entries, *own.files], key=lambda entry: entry.path))
