"""What a plan has to say that is no refusal: support with a catch, choices made, and what a killed run costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from builders.kernels import note_on_kernels
from builders.model_facts import ModelFacts
from builders.shapes import note_on_shape
from builders.trtllm.installation import find_python
from builders.trtllm.line import cards_of, engine_lines, is_served_as_checkpoint
from builders.trtllm.notes import notes_on
from builders.workers.gpu_facts import gpus
from recipes.models import Recipe
from recipes.support import support
from recipes.targets import TargetCard
from recipes.tools import DEFAULT
from recipes.variants import needs_calibration, tool_of


def notes_for(recipe: Recipe, cards: Sequence[TargetCard], facts: ModelFacts) -> tuple[str, ...]:
    return tuple(note for note in _notes(recipe, cards, facts) if note)


def _notes(recipe: Recipe, cards: Sequence[TargetCard], facts: ModelFacts) -> Iterator[str]:
    variants = recipe.variants.items()
    for name, variant in variants:
        for card in cards_of(variant, cards):
            if (finding := support(variant, card)).level != "yes":
                yield f"{name} on {card.name}: {finding.why}"
    yield from _tools(recipe, cards)
    yield _resuming(recipe, cards, facts)
    for name, variant in variants:
        yield from (note_on_kernels(name, variant, card, facts) for card in cards_of(variant, cards))
    yield from (note_on_shape(name, variant, facts) for name, variant in variants)
    yield from notes_on(recipe, cards, facts)
    if engine_lines(recipe, cards) and find_python() is None:
        yield "TensorRT-LLM is not on this machine: trtllm-build and trtllm-serve can't run here"


def _tools(recipe: Recipe, cards: Sequence[TargetCard]) -> Iterator[str]:
    """Why a variant's tool, where it is not the scheme's default, and what to know before running it here."""
    for name, variant in recipe.variants.items():
        tool = tool_of(variant)
        if tool is None or not is_served_as_checkpoint(recipe, name, cards):
            continue
        if tool.name != DEFAULT[variant.scheme]:
            yield f"{name}: {tool.name}, {tool.why}"
        if tool.cpu and not gpus():
            yield f"{name}: {tool.cpu}"


def _resuming(recipe: Recipe, cards: Sequence[TargetCard], facts: ModelFacts) -> str:
    """What becomes of a calibrated run that is killed: tools that keep finished layers are few."""
    goes_on: list[str] = []
    starts_over: list[str] = []
    for name, variant in recipe.variants.items():
        tool = tool_of(variant)
        if tool is None or not needs_calibration(variant) or not is_served_as_checkpoint(recipe, name, cards):
            continue
        (goes_on if facts.architecture in tool.resumes else starts_over).append(name)
    parts = [f"goes on after the last finished layer: {', '.join(goes_on)}"] if goes_on else []
    parts += [f"starts over: {', '.join(starts_over)}"] if starts_over else []
    return f"a quantizer that is killed {'; '.join(parts)}" if parts else ""
