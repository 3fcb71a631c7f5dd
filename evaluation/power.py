"""Can the recipe's documents decide what its gate asks? Known before anything is run."""

from __future__ import annotations

from collections.abc import Iterator

from evaluation.paired import documents_needed, margin_supported
from recipes.errors import Problem
from recipes.models import Recipe

EXPECTED_FLIPS = {
    "none": 0.01, "fp8": 0.03, "fp8-static": 0.04, "int8": 0.03, "int8-weight-only": 0.03, "gptq": 0.10, "awq": 0.10,
    "w4a8-awq": 0.10, "nvfp4": 0.10, "gguf": 0.05, "int4": 0.15,
}  # fmt: skip
"""Share of documents that change sides, by scheme: what small models show (docs/gate.md); larger ones flip less."""


def problems_with_power(recipe: Recipe) -> Iterator[Problem]:
    """Variants that would most likely end INCONCLUSIVE though nothing is wrong with them."""
    gate, documents = recipe.evaluation.gate, recipe.evaluation.documents
    for name, variant in recipe.variants.items():
        margin = variant.margin or gate.margin
        flips = gate.expected_flips or EXPECTED_FLIPS[variant.scheme]
        needed = documents_needed(flips, margin, gate.confidence, gate.power)
        if needed > documents:
            supported = margin_supported(flips, documents, gate.confidence, gate.power)
            yield Problem(
                "evaluation.documents",
                f"{documents} can't decide a margin of {margin:.1%} for {name} (reckoning with {flips:.0%} flips)",
                f"at least {needed}",
                f"Or set variants.{name}.margin to {supported:.3f} or more",
            )
