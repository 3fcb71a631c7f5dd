"""What kernels ask of shapes."""

from __future__ import annotations

import pytest

from builders.kernels import note_on_kernels, problems_with_kernels
from builders.model_facts import Linear, ModelFacts
from recipes.targets import load_card
from recipes.variants import Fp8, Gptq, Int8, Variant
from tests.builders.trtllm.shapes import facts


def of(out: int, inp: int, name: str = "model.layers.0.self_attn.q_proj") -> ModelFacts:
    linear = Linear(name=name, in_features=inp, out_features=out)
    return ModelFacts(architecture="LlamaForCausalLM", parameters=1, weight_bytes=2, linears=(linear,))


@pytest.mark.parametrize("variant", [Gptq(), Fp8(), Int8()])
def test_well_known_models_fit_everywhere(variant: Variant) -> None:
    for model in ("qwen2.5-7b", "llama-3.1-8b"):
        for card in map(load_card, ("a10", "a100", "h100", "h100x4")):
            assert list(problems_with_kernels("x", variant, card, facts(model))) == []
            assert note_on_kernels("x", variant, card, facts(model)) == ""


def test_groups_that_no_kernel_has() -> None:
    (problem,) = problems_with_kernels("x", Gptq(group_size=16), load_card("h100"), of(576, 576))
    assert "16, for which vLLM has no kernel on h100; wanted one of 32, 64, 128" in str(problem)
    assert list(problems_with_kernels("x", Gptq(group_size=16), load_card("cpu"), of(576, 576))) == []


def test_odd_widths_are_refused_by_cutlass_and_noted_by_marlin() -> None:
    (problem,) = problems_with_kernels("x", Int8(), load_card("h100"), of(100, 576))
    assert "q_proj is 100 x 576 over 1 ranks; wanted multiples of 16" in str(problem)
    assert "Marlin can't take" in note_on_kernels("x", Gptq(group_size=64), load_card("h100"), of(576, 576))
    assert "slower kernel" in note_on_kernels("x", Fp8(), load_card("a100"), of(576, 576))
    assert note_on_kernels("x", Fp8(), load_card("h100"), of(576, 576)) == ""


def test_ranks_count() -> None:
    """576 inputs over two ranks are 288 each: no multiple of 128; and 32 outputs over four ranks are 8."""
    down = of(512, 512, "model.layers.0.mlp.down_proj")
    assert note_on_kernels("x", Gptq(group_size=64), load_card("h100x4"), down) == ""
    assert note_on_kernels("x", Gptq(group_size=64), load_card("h100x8"), down) != ""
    assert list(problems_with_kernels("x", Int8(), load_card("h100x4"), of(32, 512))) != []
