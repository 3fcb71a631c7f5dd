"""A calibrated run that is killed goes on after its last finished layer, and ends in the same bytes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from artifacts.manifest import scan
from builders.toolchains import find_toolchain, make_ready
from builders.worker_process import WorkerJob, run_worker_process
from recipes.errors import StageFailed
from tests.tiny_models import write_tiny

WORKER = Path(__file__).parents[2] / "builders" / "workers" / "gptqmodel_quantize.py"
LAYERS = 4
OPTIONS = {"group_size": 64, "symmetric": True, "actorder": "static", "dampening_frac": 0.1}


def quantize(tool_home: Path, folder: Path, scratch: Path, *, kill_after: int | None = None) -> list[dict[str, Any]]:
    """Run the worker to its end, or until it has finished ``kill_after`` layers. Returns its events."""
    toolchain = find_toolchain("gptqmodel", tool_home)
    make_ready(toolchain, lambda _message: None)
    (folder / "output").mkdir(parents=True)
    scratch.mkdir(exist_ok=True)
    stop, events = threading.Event(), list[dict[str, Any]]()

    def on_event(event: dict[str, Any]) -> None:
        events.append(event)
        if kill_after is not None and event["event"] == "progress" and event["done"] >= kill_after:
            stop.set()

    run_worker_process(
        WorkerJob(
            stage="quantize:tiny", python=toolchain.python, script=WORKER,
            params={"scheme": "gptq", "options": OPTIONS, "keep": ["lm_head"]},
            inputs={"checkpoint": scratch.parent / "source", "calibration": scratch.parent / "calibration"},
            output=folder / "output", scratch=scratch, work=folder, threads=2, timeout_s=1200,
            on_event=on_event, stop=stop,
        )
    )  # fmt: skip
    return events


def test_gptqmodel_goes_on_where_it_was_killed(tool_home: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "source", "llama", convention="v5", layers=LAYERS)
    rows = [json.dumps({"text": "", "input_ids": [(7 * n + k * k) % 256 for k in range(64)]}) for n in range(8)]
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "calibration.jsonl").write_text("\n".join(rows))
    quantize(tool_home, tmp_path / "whole", tmp_path / "scratch-whole")
    with pytest.raises(StageFailed, match="stopped"):
        quantize(tool_home, tmp_path / "killed", tmp_path / "scratch", kill_after=2)
    events = quantize(tool_home, tmp_path / "again", tmp_path / "scratch")
    progress = [event["done"] for event in events if event["event"] == "progress"]
    assert progress[0] >= 2
    assert progress[-1] == LAYERS
    assert scan(tmp_path / "again" / "output").digest == scan(tmp_path / "whole" / "output").digest
