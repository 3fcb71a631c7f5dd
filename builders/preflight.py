"""Refusals that shapes and cards allow before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from builders.model_facts import ModelFacts
from recipes.errors import Problem, nearest
from recipes.models import Recipe
from recipes.support import Support, support
from recipes.targets import TargetCard
from recipes.variants import Awq, Gptq, Variant


def cards_of(variant: Variant, cards: Iterable[TargetCard]) -> list[TargetCard]:
    """The cards this variant is for."""
    return [card for card in cards if variant.targets is None or card.name in variant.targets]


def support_of(recipe: Recipe, cards: list[TargetCard]) -> dict[str, dict[str, Support]]:
    """Variant → card → support."""
    return {
        name: {card.name: support(variant.scheme, card) for card in cards_of(variant, cards)}
        for name, variant in recipe.variants.items()
    }


def problems_with(recipe: Recipe, cards: list[TargetCard], facts: ModelFacts) -> list[Problem]:
    """Everything in the recipe that can't work on this model and these cards."""
    problems: list[Problem] = []
    if facts.quantized:
        problems.append(
            Problem(
                "source",
                f"already quantized ({facts.quantized})",
                "an unquantized checkpoint",
                "Quantize from the original weights",
            )
        )
    for name, variant in recipe.variants.items():
        problems += _targets(name, variant, cards)
        problems += _groups(name, variant, cards, facts)
        problems += _keep(name, variant, facts)
    return problems


def _targets(name: str, variant: Variant, cards: list[TargetCard]) -> Iterator[Problem]:
    known = [card.name for card in cards]
    for target in variant.targets or ():
        if target not in known:
            yield Problem(
                f"variants.{name}.targets",
                repr(target),
                f"one of the recipe's targets ({', '.join(known)})",
                nearest(target, known),
            )
    for card in cards_of(variant, cards):
        finding = support(variant.scheme, card)
        if finding.level == "no":
            yield Problem(
                f"variants.{name}.scheme",
                f"{variant.scheme!r} can't run on target {card.name} ({card.runtime}): {finding.why}",
                finding.instead,
                f"Or limit the variant to other targets with variants.{name}.targets",
            )


def _groups(name: str, variant: Variant, cards: list[TargetCard], facts: ModelFacts) -> Iterator[Problem]:
    if not isinstance(variant, Gptq | Awq):
        return
    where, size = f"variants.{name}.group_size", variant.group_size
    linears = [linear for linear in facts.linears if not _kept(linear.name, variant.keep)]
    if bad := [linear for linear in linears if linear.in_features % size]:
        widths = {linear.in_features for linear in linears}
        yield Problem(
            where,
            f"{size} does not divide the input size {bad[0].in_features} of {bad[0].name} "
            f"({len(bad)} of {len(linears)} layers)",
            _sizes_that_divide(widths),
        )
        return
    for card in cards_of(variant, cards):
        ranks = card.tensor_parallel
        split = [
            linear
            for linear in linears
            if linear.row_parallel and (linear.in_features % ranks or linear.in_features // ranks % size)
        ]
        if split:
            yield Problem(
                where,
                f"{size} does not divide {split[0].name}'s {split[0].in_features} inputs "
                f"split over tensor_parallel {ranks} (target {card.name})",
                _sizes_that_divide({linear.in_features // ranks for linear in linears if linear.row_parallel}),
                "Or use a card with a smaller tensor_parallel",
            )


def _keep(name: str, variant: Variant, facts: ModelFacts) -> Iterator[Problem]:
    for pattern in variant.keep:
        if pattern.startswith("re:"):
            try:
                re.compile(pattern[3:])
            except re.error as error:
                yield Problem(
                    f"variants.{name}.keep", repr(pattern), "a regular expression after 're:'", f"It fails: {error}."
                )
    if facts.linears and not [linear for linear in facts.linears if not _kept(linear.name, variant.keep)]:
        yield Problem(f"variants.{name}.keep", "every linear layer", "at least one layer left to quantize")


def _kept(layer: str, keep: tuple[str, ...]) -> bool:
    return any(
        re.match(pattern[3:], layer) is not None if pattern.startswith("re:") else layer == pattern for pattern in keep
    )


def _sizes_that_divide(widths: set[int]) -> str:
    sizes = [size for size in (128, 64, 32, 16) if all(width % size == 0 for width in widths)]
    return f"group_size {' or '.join(map(str, sizes))}" if sizes else "a scheme without groups (fp8, int8)"
