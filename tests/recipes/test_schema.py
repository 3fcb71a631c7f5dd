"""The committed JSON Schema is the models' own."""

from __future__ import annotations

from pathlib import Path

from recipes.loading import load_recipe
from recipes.schema import recipe_schema
from recipes.targets import CARDS, load_card

RECIPES = Path(__file__).parents[2] / "recipes"


def test_the_committed_schema_is_fresh() -> None:
    committed = (RECIPES / "schema" / "recipe.schema.json").read_text(encoding="utf-8")
    assert committed == recipe_schema(), "run: engineworks schema > recipes/schema/recipe.schema.json"


def test_every_shipped_recipe_and_card_loads() -> None:
    cards = {path.stem: load_card(path.stem) for path in CARDS.glob("*.yaml")}
    assert set(cards) == {"a10", "a100", "l4", "l40s", "h100", "h200", "b200", "rtx4090", "cpu"}
    assert all(card.name == name for name, card in cards.items())
    for path in RECIPES.glob("*.yaml"):
        recipe = load_recipe(path)
        assert all(load_card(target) for target in recipe.targets)
