"""What the serving kernels of each target ask of a layer's shape, before anything is quantized.

| kernel | serves | asks | source |
|---|---|---|---|
| Marlin (vLLM, SM 80 on) | 4-bit weights | groups of 32, 64 or 128; inputs a rank % 128, outputs a rank % 64 | vLLM, quantization/utils/marlin_utils.py |
| CUTLASS scaled_mm (vLLM) | FP8, INT8 | inputs and outputs a rank % 16 | vLLM, csrc/quantization/w8a8/cutlass |
| Marlin FP8 (SM 80 to 88) | FP8 weights | as Marlin | vLLM, quantization/utils/marlin_utils_fp8.py |

A group size that no kernel has is refused. A layer that Marlin can't take is served by a slower kernel, and said so.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator

from builders.model_facts import Linear, ModelFacts
from recipes.errors import Problem
from recipes.support import FIRST_FP8_SM
from recipes.targets import TargetCard
from recipes.variants import Awq, Fp8, Fp8Static, Gptq, Int4, Int8, Variant

MARLIN_GROUPS = (32, 64, 128)
MARLIN_INPUTS, MARLIN_OUTPUTS = 128, 64
CUTLASS_MULTIPLE = 16


def problems_with_kernels(name: str, variant: Variant, card: TargetCard, facts: ModelFacts) -> Iterator[Problem]:
    if card.sm is None or card.runtime != "vllm":
        return
    if isinstance(variant, Gptq | Awq | Int4) and variant.group_size not in MARLIN_GROUPS:
        yield Problem(
            f"variants.{name}.group_size",
            f"{variant.group_size}, for which vLLM has no kernel on {card.name}",
            f"one of {', '.join(map(str, MARLIN_GROUPS))}",
        )
    if isinstance(variant, Fp8 | Fp8Static | Int8) and (odd := _first(facts, card, CUTLASS_MULTIPLE, CUTLASS_MULTIPLE)):
        yield Problem(
            f"variants.{name} on {card.name}",
            f"{odd.name} is {odd.out_features} x {odd.in_features} over {card.tensor_parallel} ranks",
            f"multiples of {CUTLASS_MULTIPLE} on every rank",
            f"Keep the layer (variants.{name}.keep), or use a smaller tensor_parallel",
        )


def note_on_kernels(name: str, variant: Variant, card: TargetCard, facts: ModelFacts) -> str:
    """A warning when Marlin can't serve some layer. ``""`` when it can, or is not asked to."""
    if card.sm is None or card.runtime != "vllm":
        return ""
    by_marlin = isinstance(variant, Gptq | Awq | Int4) or (
        isinstance(variant, Fp8 | Fp8Static) and card.sm < FIRST_FP8_SM
    )
    odd = _first(facts, card, MARLIN_INPUTS, MARLIN_OUTPUTS) if by_marlin else None
    if odd is None:
        return ""
    return (
        f"{name} on {card.name}: Marlin can't take {odd.name} ({odd.out_features} x {odd.in_features}; it wants "
        f"multiples of {MARLIN_OUTPUTS} x {MARLIN_INPUTS}), vLLM falls back to a slower kernel"
    )


def _first(facts: ModelFacts, card: TargetCard, inputs: int, outputs: int) -> Linear | None:
    """The first layer whose share on a rank is no multiple."""
    tp = card.tensor_parallel
    for linear in facts.linears:
        by_input = linear.row_parallel
        share_in = linear.in_features / tp if by_input else linear.in_features
        share_out = linear.out_features if by_input else linear.out_features / tp
        if share_in % inputs or share_out % outputs:
            return linear
    return None
