"""What a plan says beside its stages."""

from __future__ import annotations

from typing import Any

from builders.model_facts import ModelFacts
from flows.notes import notes_for
from recipes.models import Recipe
from recipes.targets import load_card


def notes(architecture: str, **variants: dict[str, Any]) -> str:
    recipe = Recipe.model_validate({"model": "m", "source": "path:/m", "variants": variants, "targets": ["h100"]})
    facts = ModelFacts(architecture=architecture, parameters=1, weight_bytes=2, linears=())
    return "\n".join(notes_for(recipe, [load_card("h100")], facts))


def test_a_killed_quantizer_goes_on_or_starts_over() -> None:
    said = notes(
        "LlamaForCausalLM",
        fp8={"scheme": "fp8"},
        mine={"scheme": "gptq", "tool": "gptqmodel"},
        other={"scheme": "gptq"},
        third={"scheme": "awq"},
    )
    assert "goes on after the last finished layer: mine; starts over: other, third" in said


def test_only_where_the_tool_takes_layers_up() -> None:
    assert "starts over: mine" in notes("MistralForCausalLM", mine={"scheme": "gptq", "tool": "gptqmodel"})


def test_schemes_without_data_have_nothing_to_lose() -> None:
    assert "killed" not in notes("LlamaForCausalLM", fp8={"scheme": "fp8"})
