"""What shapes and cards refuse before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.model_facts import Linear, ModelFacts
from builders.preflight import problems_with
from recipes.loading import load_recipe
from recipes.targets import TargetCard, load_card

DEMO = Path(__file__).parents[2] / "recipes" / "smollm2-135m.yaml"


def facts(in_features: int = 576, quantized: str | None = None) -> ModelFacts:
    linear = Linear(name="model.layers.0.mlp.down_proj", in_features=in_features, out_features=64)
    return ModelFacts(
        architecture="LlamaForCausalLM", parameters=10, weight_bytes=20, linears=(linear,), quantized=quantized
    )


def problems(card: TargetCard, *overrides: str, of: ModelFacts | None = None) -> list[str]:
    recipe = load_recipe(DEMO, overrides)
    return [str(problem) for problem in problems_with(recipe, [card], of or facts())]


def test_the_demo_is_clean() -> None:
    assert problems(load_card("cpu")) == []


def test_group_size_must_divide_every_layer() -> None:
    (found,) = problems(load_card("cpu"), "variants.gptq.group_size=128")
    assert "variants.gptq.group_size: 128 does not divide the input size 576" in found
    assert "wanted group_size 64 or 32 or 16" in found


def test_group_size_must_divide_each_rank_s_share() -> None:
    card = load_card("h100").model_copy(update={"tensor_parallel": 2, "count": 2})
    found = problems(card, "variants.awq=null")
    assert len(found) == 1
    assert "split over tensor_parallel 2" in found[0]
    assert "group_size 32 or 16" in found[0]


@pytest.mark.parametrize(
    ("card", "runtime", "refused"), [("a100", "engine", True), ("a100", "vllm", False), ("h100", "engine", False)]
)
def test_fp8_engines_need_sm_89(card: str, runtime: str, *, refused: bool) -> None:
    found = problems(load_card(card).model_copy(update={"runtime": runtime}))
    assert any("variants.fp8.scheme" in line and "SM 89" in line for line in found) is refused


def test_a_quantized_source_is_refused() -> None:
    (found,) = problems(load_card("cpu"), of=facts(quantized="gptq"))
    assert "already quantized (gptq)" in found
