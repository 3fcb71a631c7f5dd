"""Which tool copes with which shape of model: what runs have shown, and what must be refused before one."""

from __future__ import annotations

from collections.abc import Iterator

from builders.model_facts import ModelFacts
from recipes.errors import Problem
from recipes.variants import Variant, is_data_free, tool_of

RENAMED = ("MixtralForCausalLM",)
"""Architectures whose experts llm-compressor's whole-model path writes under names that servers do not load (0.14)."""
DENSE = (
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "GemmaForCausalLM",
    "Phi3ForCausalLM",
)  # fmt: skip
RUN = {
    "llm-compressor": (*DENSE, "Qwen3MoeForCausalLM", "MixtralForCausalLM"),
    "modelopt": ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"),
    "gptqmodel": ("LlamaForCausalLM",),
    "autogptq": ("LlamaForCausalLM",),
    "autoawq": ("LlamaForCausalLM",),
    "llama.cpp": ("LlamaForCausalLM",),
}
"""Tool → architectures that it has been run on, with nothing found wrong (tests/e2e)."""


def problems_with_shape(name: str, variant: Variant, facts: ModelFacts) -> Iterator[Problem]:
    tool = tool_of(variant)
    if tool is None or tool.name != "llm-compressor" or is_data_free(variant):
        return
    if facts.architecture in RENAMED:
        yield Problem(
            f"variants.{name}.scheme",
            f"{variant.scheme!r} on a {facts.architecture}: its experts are written under names that no server loads",
            "a scheme without data: fp8, int4, or int8 with method: rtn and smoothing_strength: null",
        )


def note_on_shape(name: str, variant: Variant, facts: ModelFacts) -> str:
    """A warning for a pair that no run has shown. ``""`` for one that has."""
    tool = tool_of(variant)
    if tool is None or facts.architecture in RUN[tool.name]:
        return ""
    return f"{name}: {tool.name} has not been run on a {facts.architecture} here; the integrity check will tell"
