"""Everything that forbids an engine line, found from the recipe, the card and the shapes alone."""

from __future__ import annotations

from collections.abc import Iterable

from builders.model_facts import ModelFacts
from builders.trtllm.line import EngineLine, engine_lines
from builders.trtllm.memory import GROUP
from builders.trtllm.routes import choose_route
from builders.trtllm.settings import engine_settings
from recipes.errors import Problem
from recipes.models import Recipe
from recipes.support import support
from recipes.targets import TargetCard
from recipes.variants import Awq, W4A8Awq


def problems_with_engines(recipe: Recipe, cards: Iterable[TargetCard], facts: ModelFacts) -> list[Problem]:
    problems: list[Problem] = []
    lines = [
        line
        for line in engine_lines(recipe, cards)
        if support(recipe.variants[line.variant], line.card).level != "no"  # refused already
    ]
    for line in lines:
        variant = recipe.variants[line.variant]
        _, no_route = choose_route(variant, facts, line.card, recipe.engine)
        problems += no_route
        if facts.attention is None and not no_route:
            problems.append(
                Problem(f"targets {line.card.name}", "a model whose config names no attention heads", "a decoder")
            )
        problems += engine_settings(recipe, variant, facts, line.card)[1]
        problems += _groups(line, recipe, facts)
    return list(dict.fromkeys(problems))


def _groups(line: EngineLine, recipe: Recipe, facts: ModelFacts) -> list[Problem]:
    """AWQ scales are laid out in groups along the input. ModelOpt wants whole groups on every rank of every layer, of
    those split by output too."""
    variant, tp = recipe.variants[line.variant], line.card.tensor_parallel
    if not isinstance(variant, Awq | W4A8Awq):
        return []
    size = variant.group_size if isinstance(variant, Awq) else GROUP
    for linear in facts.linears:
        if linear.in_features % (tp * size):
            return [
                Problem(
                    f"variants.{line.variant} on {line.card.name}",
                    f"groups of {size} do not divide the {linear.in_features} inputs of {linear.name} over {tp} ranks",
                    "a smaller tensor_parallel, or a scheme without groups (fp8, int8)",
                )
            ]
    return []
