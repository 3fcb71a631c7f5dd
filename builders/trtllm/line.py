"""A line: one variant for one engine target, built, judged and released by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recipes.models import Recipe
from recipes.targets import TargetCard
from recipes.variants import Variant


@dataclass(frozen=True)
class EngineLine:
    variant: str
    card: TargetCard

    @property
    def name(self) -> str:
        """``fp8.h100-engine``: in stage names and as the variant that its releases are filed under."""
        return f"{self.variant}.{self.card.slug}"


def cards_of(variant: Variant, cards: Iterable[TargetCard]) -> list[TargetCard]:
    """The cards that a variant is for."""
    return [card for card in cards if variant.targets is None or card.name in variant.targets]


def engine_lines(recipe: Recipe, cards: Iterable[TargetCard]) -> list[EngineLine]:
    cards = list(cards)
    return [
        EngineLine(name, card)
        for name, variant in recipe.variants.items()
        for card in cards_of(variant, cards)
        if card.runtime == "engine"
    ]


def is_served_as_checkpoint(recipe: Recipe, variant: str, cards: Iterable[TargetCard]) -> bool:
    """Whether some target takes the variant's weights themselves (vLLM, trtllm-serve's PyTorch backend)."""
    return any(card.runtime != "engine" for card in cards_of(recipe.variants[variant], cards))
