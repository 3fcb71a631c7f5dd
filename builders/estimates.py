"""What a stage will write and need, from shapes alone.

Bytes of a quantized checkpoint: every linear layer at the scheme's bits plus its scales, everything else (embeddings,
norms, output head) as in the source. Memory of a quantizer without a GPU: the tool itself, the weights in the type it
computes in, what it writes, the Hessians of one layer and the logits of one sample. benchmarks/quantizers.py lays the
estimates beside measured peaks (docs/measured-quantizers.md).
"""

from __future__ import annotations

from builders.model_facts import ModelFacts
from builders.workers.cpu_facts import computes_in_bfloat16
from builders.workers.gpu_facts import gpus
from recipes.strict import Strict
from recipes.variants import (
    AsIs,
    Awq,
    Gguf,
    Gptq,
    Int4,
    Int8,
    Nvfp4,
    Variant,
    W4A8Awq,
    is_data_free,
    tool_of,
)

TOOL_BYTES = 650 * 10**6
"""Resident memory of an interpreter with torch, transformers and a quantizer imported."""
BARE_BYTES = {"llama.cpp": 150 * 10**6, "autogptq": 650 * 10**6}
"""Of tools that differ much from that."""
OFFLOADS = ("llm-compressor", "gptqmodel")
"""Tools that keep weights on disk and take them in layer by layer when memory is short."""
OVERHEAD = 1.5
"""Shards in memory at once when weights are quantized shard by shard: one and what becomes of it."""

GGUF_BITS = {"f16": 16, "q8_0": 8.5, "q6_k": 6.6, "q5_k_m": 5.7, "q4_k_m": 4.9, "q4_0": 4.6}
"""Bits a weight, with its block's scales. Where widths do not divide by 256 it is up to one more."""


USUAL_SHARD = 5 * 10**9
"""Bytes of a shard as transformers writes them. Schemes without data hold one and what becomes of it."""


class Estimate(Strict):
    """Bytes."""

    output_bytes: int
    memory_bytes: int
    """Peak where memory is ample."""
    least_bytes: int
    """Without as much it can't run: tools that offload need less than their peak."""


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


def estimate_quantize(variant: Variant, facts: ModelFacts, sample_tokens: int) -> Estimate:
    """``sample_tokens``: tokens of one calibration sample."""
    output, tool = quantized_bytes(variant, facts), tool_of(variant)
    name = tool.name if tool else ""
    base = BARE_BYTES.get(name, TOOL_BYTES)
    if is_data_free(variant) and name == "llm-compressor":
        return _needs(output, base + round(OVERHEAD * min(facts.weight_bytes, USUAL_SHARD)))
    if isinstance(variant, Gguf):
        return _needs(output, base + min(facts.weight_bytes, USUAL_SHARD))
    weights = compute_bytes(facts, name)
    work = _hessians(variant, facts) + _logits(facts, sample_tokens)
    peak = base + weights + output + work
    layers = facts.attention.layers if facts.attention else 1
    least = base + 2 * weights // layers + work if name in OFFLOADS else peak
    return Estimate(output_bytes=output, memory_bytes=peak, least_bytes=min(least, peak))


def compute_bytes(facts: ModelFacts, tool: str) -> int:
    """Bytes of all weights in the type that a tool computes in."""
    narrow = facts.dtype in ("bfloat16", "float16")
    if tool == "llm-compressor":
        narrow = narrow and (computes_in_bfloat16() or bool(gpus()))
    elif tool in ("autogptq", "modelopt"):
        narrow = False
    return facts.parameters * (2 if narrow else 4)


def _hessians(variant: Variant, facts: ModelFacts) -> int:
    """A matrix of inputs by inputs for each kind of linear layer, and its inverse while one is worked on."""
    if not isinstance(variant, Gptq | Int8):
        return 0
    widths = [linear.in_features for linear in facts.linears]
    layers = max(1, facts.attention.layers if facts.attention else 1)
    return 4 * (sum(width * width for width in widths) // layers + max((w * w for w in widths), default=0))


def _logits(facts: ModelFacts, sample_tokens: int) -> int:
    """In 32 bits, and once more as they came."""
    return 6 * sample_tokens * (facts.attention.vocab_size if facts.attention else 0)


def _needs(output: int, memory: int) -> Estimate:
    return Estimate(output_bytes=output, memory_bytes=memory, least_bytes=memory)


def estimate_fetch(facts: ModelFacts) -> Estimate:
    return _needs(facts.weight_bytes, TOOL_BYTES + 2 * facts.weight_bytes)


def estimate_convert(facts: ModelFacts) -> Estimate:
    """ModelOpt holds the model in 32 bits on a processor and the whole checkpoint it exports beside it."""
    return _needs(facts.weight_bytes, TOOL_BYTES + 4 * facts.parameters + facts.weight_bytes)


def estimate_evaluate(facts: ModelFacts) -> Estimate:
    return _needs(1 << 20, TOOL_BYTES + 4 * facts.parameters)


def in_words(size: float) -> str:
    """``1.5 GB``, in powers of 1000 as disks and the Hub count."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
