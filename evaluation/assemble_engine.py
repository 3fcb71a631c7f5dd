"""Stage function that turns an engine and its evidence into a release: see evaluation/assemble.py for weights."""

from __future__ import annotations

import json
from typing import Any

from artifacts.manifest import scan
from artifacts.release import EngineBuilt, Release
from builders.run_stage import Job
from evaluation.assemble import entries, read_inputs, write_common, write_release
from evaluation.verdict import PUBLISHED, read_verdict
from recipes.errors import StageFailed
from recipes.models import Recipe

HARDWARE = "hardware.json"
"""What the build worker read from the machine (builders/workers/trtllm_build.py)."""


def run(job: Job) -> None:
    """Params and inputs: see evaluation/stages.py."""
    verdict = read_verdict(job.inputs["gate"])
    if verdict.outcome not in PUBLISHED:
        raise StageFailed(job.stage, "bad_input", f"the gate says {verdict.outcome}: {verdict.reason}")
    recipe = Recipe.model_validate(job.params["recipe"])
    inputs = read_inputs(job)
    built: dict[str, Any] = json.loads((job.inputs["engine"] / HARDWARE).read_text(encoding="utf-8"))
    common = write_common(job, inputs, recipe, verdict)
    release = Release(
        **common,
        variant=job.params["line"],
        calibration=inputs["calibration"].manifest.digest if "calibration" in inputs else None,
        engine=EngineBuilt(**{name: built[name] for name in EngineBuilt.model_fields}),
        files=entries(inputs, scan(job.output)),
    )
    write_release(job, release)
