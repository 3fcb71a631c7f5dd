"""What a stage will write and need, from shapes alone.

Bytes of a quantized checkpoint: every linear layer at the scheme's bits plus its scales, everything else (embeddings,
norms, output head) as in the source. Memory of a quantizer on the CPU: the whole model in 32-bit floats, the Hessians
or activations of one layer, and the tool itself.
"""

from __future__ import annotations

from builders.model_facts import ModelFacts
from recipes.strict import Strict
from recipes.variants import AsIs, Awq, Gguf, Gptq, Int4, Nvfp4, Variant, W4A8Awq, is_data_free

TOOL_BYTES = 700 << 20
"""Resident memory of an interpreter with torch, transformers and llm-compressor imported."""


GGUF_BITS = {"f16": 16, "q8_0": 8.5, "q6_k": 6.6, "q5_k_m": 5.7, "q4_k_m": 4.9, "q4_0": 4.6}
"""Bits a weight, with its block's scales. Where widths do not divide by 256 it is up to one more."""


USUAL_SHARD = 5 * 10**9
"""Bytes of a shard as transformers writes them. Schemes without data hold one and what becomes of it."""


class Estimate(Strict):
    """Upper estimates in bytes."""

    output_bytes: int
    memory_bytes: int


def quantized_bytes(variant: Variant, facts: ModelFacts) -> int:
    """Bytes of the tensors of the quantized checkpoint."""
    source_width = facts.weight_bytes / max(1, facts.parameters)
    kept = (facts.parameters - facts.linear_parameters) * source_width
    if isinstance(variant, AsIs):
        return facts.weight_bytes
    if isinstance(variant, Gguf):
        return round(facts.parameters * GGUF_BITS[variant.type] / 8)
    if isinstance(variant, W4A8Awq | Nvfp4):
        group = 16 if isinstance(variant, Nvfp4) else 128
        scales = sum(linear.out_features * -(-linear.in_features // group) for linear in facts.linears)
        return round(kept + facts.linear_parameters / 2 + scales * (1 if isinstance(variant, Nvfp4) else 4))
    if isinstance(variant, Gptq | Awq | Int4):
        scales = sum(linear.out_features * -(-linear.in_features // variant.group_size) for linear in facts.linears)
        zeros = 0 if variant.symmetric else scales // 2
        return round(kept + facts.linear_parameters / 2 + scales * source_width + zeros)
    return round(kept + facts.linear_parameters + sum(linear.out_features for linear in facts.linears) * source_width)


def estimate_quantize(variant: Variant, facts: ModelFacts, calibration_tokens: int) -> Estimate:
    output = quantized_bytes(variant, facts)
    if is_data_free(variant):
        return Estimate(output_bytes=output, memory_bytes=TOOL_BYTES + 3 * min(facts.weight_bytes, USUAL_SHARD))
    largest = max((linear.in_features for linear in facts.linears), default=0)
    layer = largest * largest * 4 * 2
    activations = calibration_tokens * largest * 4
    return Estimate(output_bytes=output, memory_bytes=TOOL_BYTES + 4 * facts.parameters + layer + activations)


def estimate_fetch(facts: ModelFacts) -> Estimate:
    return Estimate(output_bytes=facts.weight_bytes, memory_bytes=TOOL_BYTES + 3 * facts.weight_bytes)


def estimate_convert(facts: ModelFacts) -> Estimate:
    """ModelOpt holds the model in 32 bits on a processor and the whole checkpoint it exports beside it."""
    return Estimate(
        output_bytes=facts.weight_bytes, memory_bytes=TOOL_BYTES + 4 * facts.parameters + facts.weight_bytes
    )


def estimate_evaluate(facts: ModelFacts) -> Estimate:
    return Estimate(output_bytes=1 << 20, memory_bytes=TOOL_BYTES + 4 * facts.parameters)


def in_words(size: float) -> str:
    """``1.5 GB``, in powers of 1000 as disks and the Hub count."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
