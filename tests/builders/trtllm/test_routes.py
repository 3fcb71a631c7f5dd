"""Which way a checkpoint takes, and that every converter's command line is one its release knows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.trtllm.options import parse_version
from builders.trtllm.routes import _script, choose_route
from recipes.engine import EngineBuild
from recipes.targets import load_card
from recipes.variants import AsIs, Awq, Fp8, Fp8Static, Int8, Int8WeightOnly, W4A8Awq
from tests.builders.trtllm.shapes import facts

RELEASES = ("0.9.0", "0.12.0", "0.16.0", "0.17.0", "0.20.0", "1.0.0", "1.2.1")
VARIANTS = (AsIs(), Fp8(), Fp8Static(), Fp8Static(kv_cache="fp8"), Int8(), Int8WeightOnly(), Awq(), W4A8Awq())


def card(release: str = "1.2.1", name: str = "h100:engine") -> Any:
    return load_card(name).model_copy(update={"tensorrt_llm": release})


def test_modelopt_is_the_default() -> None:
    for variant in VARIANTS:
        route, problems = choose_route(variant, facts("llama-3.1-8b"), card(), EngineBuild())
        assert problems == []
        assert route is not None
        assert route.kind == "modelopt"


@given(
    release=st.sampled_from(RELEASES),
    variant=st.sampled_from(VARIANTS),
    model=st.sampled_from(["qwen2.5-7b", "llama-3.1-8b"]),
    ranks=st.sampled_from(["h100:engine", "h100x2:engine"]),
)
def test_a_converter_s_command_has_only_options_of_its_release(
    release: str, variant: Any, model: str, ranks: str
) -> None:
    target = card(release, ranks)
    route, problems = choose_route(variant, facts(model), target, EngineBuild(route="converter"))
    if route is None:
        assert problems
        return
    assert route.program is not None
    kind = "quantize" if "quantize" in route.program else "llama" if "llama" in route.program else "qwen"
    _, options = _script(target, kind)
    for place, word in enumerate(route.arguments):
        if not word.startswith("--"):
            continue
        option = options[word.removeprefix("--")]
        if option["kind"] != "flag" and option.get("choices"):
            assert route.arguments[place + 1] in option["choices"]
    assert "{checkpoint}" in route.arguments
    required = [name for name, option in options.items() if option.get("required")]
    assert all(f"--{name}" in route.arguments for name in required)
    new_place = parse_version(release) >= (0, 20) and kind != "quantize"
    assert ("models/core" in route.program) is new_place


def test_smoothquant_by_the_converter_is_per_token_and_per_channel() -> None:
    route, _ = choose_route(Int8(smoothing_strength=0.5), facts("llama-3.1-8b"), card(), EngineBuild(route="converter"))
    assert route is not None
    assert route.program == "examples/models/core/llama/convert_checkpoint.py"
    assert route.quant_algo == "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"
    assert route.arguments[-4:] == ("--smoothquant", "0.5", "--per_token", "--per_channel")


def test_a_quantized_source_goes_by_the_converter() -> None:
    gptq = facts("llama-3.1-8b", quantization_config={"quant_method": "gptq", "desc_act": False})
    route, problems = choose_route(AsIs(), gptq, card(), EngineBuild())
    assert problems == []
    assert route is not None
    assert route.kind == "converter"
    assert "only TensorRT-LLM's converter reads it" in route.why
    assert route.quant_algo == "W4A16_GPTQ"


@pytest.mark.parametrize(
    ("quantization", "release", "engine", "says"),
    [
        ({"quant_method": "gptq", "desc_act": True}, "1.2.1", EngineBuild(), "desc_act: true"),
        ({"quant_method": "gptq"}, "0.12.0", EngineBuild(), "0.16 or newer"),
        ({"quant_method": "bitsandbytes"}, "1.2.1", EngineBuild(), "a source quantized by bitsandbytes"),
        ({"quant_method": "awq"}, "1.2.1", EngineBuild(route="modelopt"), "auto or converter"),
    ],
)
def test_quantized_sources_that_no_converter_takes(
    quantization: dict[str, Any], release: str, engine: EngineBuild, says: str
) -> None:
    source = facts("llama-3.1-8b", quantization_config=quantization)
    route, problems = choose_route(AsIs(), source, card(release), engine)
    assert route is None
    assert says in str(problems[0])


def test_other_architectures() -> None:
    route, problems = choose_route(
        AsIs(), facts("llama-3.1-8b", architectures=["GPT2LMHeadModel"]), card(), EngineBuild()
    )
    assert route is None
    assert "a GPT2LMHeadModel for an engine" in str(problems[0])
    qwen3 = facts("qwen2.5-7b", architectures=["Qwen3ForCausalLM"])
    route, problems = choose_route(Int8(), qwen3, card("0.17.0"), EngineBuild(route="converter"))
    assert route is None
    assert "0.20 or newer" in str(problems[0])
