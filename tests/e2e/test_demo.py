"""The main job, end to end, on a real model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import DEMO, Bench

Demo = tuple[Bench, dict[str, Any]]


def test_four_variants_pass_and_are_published(demo: Demo) -> None:
    _, result = demo
    assert {row["variant"]: row["verdict"] for row in result["releases"]} == dict.fromkeys(
        ("fp8", "int8", "gptq", "awq"), "PASS"
    )
    sizes = {row["variant"]: row["bytes"] / result["original_bytes"] for row in result["releases"]}
    assert sizes["gptq"] == pytest.approx(0.43, abs=0.02)
    assert sizes["fp8"] == pytest.approx(0.61, abs=0.02)
    assert all(row["drop"] < row["upper_bound"] < row["margin"] for row in result["releases"])


def test_again_does_nothing(demo: Demo) -> None:
    bench, result = demo
    again = bench.build()
    assert again["releases"] == result["releases"]
    assert again["stages"] == {"ran": 0, "cached": result["stages"]["ran"]}
    plan = json.loads(bench.run("plan", str(DEMO), "--json").stdout)
    assert {stage["status"] for stage in plan["stages"]} == {"cached"}
    assert len({stage["key"] for stage in plan["stages"]}) == len(plan["stages"])


@pytest.mark.parametrize("variant", ["fp8", "int8", "gptq", "awq"])
def test_each_answers(demo: Demo, variant: str) -> None:
    bench, result = demo
    (release,) = [row["release_id"] for row in result["releases"] if row["variant"] == variant]
    done = bench.run("try", release, "Name three primary colors.", "--json")
    answer = json.loads(done.stdout)["text"].lower()
    assert {"red", "blue"} <= set(re.findall(r"[a-z]+", answer)), answer


def test_verify_and_pull(demo: Demo, tmp_path: Path) -> None:
    bench, result = demo
    release = result["releases"][0]["release_id"]
    assert bench.run("verify", release).returncode == 0
    done = bench.run("pull", release, str(tmp_path / "here"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "weights" / "model.safetensors").stat().st_size > 1e8
    assert "PASS" in (tmp_path / "here" / "README.md").read_text()


def test_a_variant_that_does_not_pass_is_withheld(demo: Demo) -> None:
    """The others go on, the exit code is 1, and what was evaluated is not evaluated again."""
    bench, _ = demo
    tight = ("--set", "variants.gptq.margin=0.007", "--set", "evaluation.gate.expected_flips=0.0001")
    done = bench.run("build", str(DEMO), "--json", *tight)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    rows = {row["variant"]: row for row in result["releases"]}
    assert rows["gptq"]["verdict"] in ("FAIL", "INCONCLUSIVE")
    assert rows["gptq"]["release_id"] is None
    assert all(rows[name]["release_id"] for name in ("fp8", "int8", "awq"))
    again = bench.run("build", str(DEMO), "--json", *tight)
    assert again.returncode == 1
    assert json.loads(again.stdout)["stages"]["ran"] == 0


def test_a_group_size_that_does_not_fit_is_refused_before_anything_runs(demo: Demo) -> None:
    bench, _ = demo
    done = bench.run("build", str(DEMO), "--set", "variants.gptq.group_size=128")
    assert done.returncode == 2
    assert "variants.gptq.group_size: 128 does not divide the input size 576" in done.stderr
