"""A build that this machine can't carry is refused before it starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artifacts.stage import Stage
from builders.estimates import Estimate, estimate_quantize
from builders.model_facts import Attention, Linear, ModelFacts
from builders.workers import memory
from flows.machine import memory_note, problems_with_machine
from flows.plan import PlannedStage
from recipes.variants import Awq, Fp8, Gptq

LAYERS, HIDDEN = 32, 4096
LINEARS = tuple(
    Linear(name=f"model.layers.{n}.mlp.{name}", in_features=HIDDEN, out_features=HIDDEN)
    for n in range(LAYERS)
    for name in "abcdefghijkl"
)
SEVEN_B = ModelFacts(
    architecture="LlamaForCausalLM",
    parameters=sum(linear.in_features * linear.out_features for linear in LINEARS) + 2 * 32000 * HIDDEN,
    weight_bytes=2 * (sum(linear.in_features * linear.out_features for linear in LINEARS) + 2 * 32000 * HIDDEN),
    linears=LINEARS,
    dtype="bfloat16",
    attention=Attention(
        layers=LAYERS, heads=32, kv_heads=32, head_dim=128, hidden_size=HIDDEN, intermediate_size=11008,
        vocab_size=32000, max_positions=4096,
    ),
)  # fmt: skip


def plan_of(**estimates: Estimate) -> Any:
    stages = [
        PlannedStage(
            stage=Stage(name=name, kind="quantize", entry="x", params={}, inputs={}, code="c"),
            key=name,
            status="todo",
            estimate=estimate,
        )
        for name, estimate in estimates.items()
    ]
    return SimpleNamespace(stages=stages, todo=stages)


def test_a_tool_that_offloads_needs_less_than_its_peak() -> None:
    gptq, awq_by_autoawq = (
        estimate_quantize(variant, SEVEN_B, 512) for variant in (Gptq(), Awq(tool="autoawq", symmetric=False))
    )
    assert gptq.least_bytes < 0.4 * gptq.memory_bytes
    assert awq_by_autoawq.least_bytes == awq_by_autoawq.memory_bytes
    assert gptq.memory_bytes > SEVEN_B.weight_bytes


def test_shards_bound_what_needs_no_data() -> None:
    assert estimate_quantize(Fp8(), SEVEN_B, 512).memory_bytes < 9e9


def test_memory_that_is_not_there_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.SETTING, "4")
    plan = plan_of(big=Estimate(output_bytes=0, memory_bytes=9 * 10**9, least_bytes=5 * 10**9))
    (problem,) = problems_with_machine(plan, tmp_path)
    assert str(problem).startswith("memory: 4.0 GB here; wanted about 5.0 GB for big")


def test_what_can_offload_is_let_in_and_said_to_be_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.SETTING, "6")
    plan = plan_of(big=Estimate(output_bytes=0, memory_bytes=9 * 10**9, least_bytes=5 * 10**9))
    assert problems_with_machine(plan, tmp_path) == []
    assert memory_note(plan).startswith("big: more weights than memory (6.0 GB)")


def test_disk_that_is_not_there_is_a_refusal(tmp_path: Path) -> None:
    plan = plan_of(big=Estimate(output_bytes=10**18, memory_bytes=0, least_bytes=0))
    (problem,) = problems_with_machine(plan, tmp_path)
    assert problem.where == "disk"


def test_a_container_s_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(memory.SETTING, raising=False)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    whole = memory.memory_limit()
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.memory_limit() == whole
    (tmp_path / "memory.max").write_text("2000000000\n")
    (tmp_path / "memory.current").write_text("500000000\n")
    assert memory.memory_limit() == 2_000_000_000
    assert memory.memory_for_weights() == 2_000_000_000 - 500_000_000 - memory.TOOL - 200_000_000
