"""Recipes: what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipes.errors import BadRequest
from recipes.loading import load_recipe

DEMO = Path(__file__).parents[2] / "recipes" / "smollm2-135m.yaml"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("variants.gptq.groupsize=64", "Did you mean 'group_size'?"),
        ("variants.gptq.scheme=gpqt", "Did you mean 'gptq'?"),
        ("variants.gptq.group_size=big", "variants.gptq.group_size: 'big'"),
        ("evaluation.gate.margin=0", "evaluation.gate.margin"),
        ("modle=x", "Did you mean 'model'?"),
    ],
)
def test_a_bad_override_is_named(override: str, says: str) -> None:
    with pytest.raises(BadRequest, match="--set") as refused:
        load_recipe(DEMO, [override])
    assert says in str(refused.value)


def test_not_yaml_gives_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("model: x\nvariants: [\n")
    with pytest.raises(BadRequest, match=r"r\.yaml:\d+: not YAML"):
        load_recipe(path)


def test_extends_merges_and_null_removes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"extends: {DEMO}\nvariants: {{awq: null, gptq: {{group_size: 32}}}}\n")
    recipe = load_recipe(path)
    assert sorted(recipe.variants) == ["fp8", "gptq", "int8"]
    assert recipe.variants["gptq"].model_dump()["group_size"] == 32
