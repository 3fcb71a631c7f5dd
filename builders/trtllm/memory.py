"""Does an engine fit its GPU, and how many sequences beside it? Bytes per rank, from shapes alone.

engine  = (linear weights at the scheme's bits + scales) / (tp x pp) + embedding table + output head / tp, both 16 bit
runtime = 1.5 GiB (CUDA context, cuBLAS, decoder) + activations of one pass, max_num_tokens x (4 hidden + 3
          intermediate / tp) x 2 bytes, + logits, max_batch_size x vocabulary x 4 bytes
cache   = 0.9 x (memory - engine - runtime), what the server takes of what is free (kv_cache_free_gpu_mem_fraction)
tokens  = cache / (2 x layers / pp x KV heads / tp x head_dim x bytes of a cached value)
batch   = tokens / max_seq_len: sequences at full length that fit at once

The size of the cache follows TensorRT-LLM's "Memory usage" page (docs, reference/memory): a key and a value for every
layer and KV head, in pages. KV heads are repeated when there are fewer than tensor-parallel ranks.
"""

from __future__ import annotations

from math import ceil

from builders.model_facts import Attention, ModelFacts
from recipes.strict import Strict
from recipes.targets import TargetCard
from recipes.variants import Variant

GIB = 1 << 30
RUNTIME_BYTES = 3 * GIB // 2
CACHE_SHARE = 0.9
BITS = {
    "none": 16,
    "fp8": 8,
    "fp8-static": 8,
    "int8": 8,
    "int8-weight-only": 8,
    "awq": 4,
    "gptq": 4,
    "w4a8-awq": 4,
    "nvfp4": 4,
}
GROUP = 128


class EngineMemory(Strict):
    """Bytes per rank."""

    total: int
    engine: int
    runtime: int
    cache: int
    """Room for keys and values. Zero or less: nothing fits."""
    bytes_per_token: int
    max_seq_len: int

    @property
    def tokens(self) -> int:
        """Tokens of all sequences together that the cache holds."""
        return max(0, self.cache) // self.bytes_per_token

    @property
    def batch(self) -> int:
        """Sequences of ``max_seq_len`` at once."""
        return self.tokens // self.max_seq_len


def engine_memory(
    variant: Variant,
    facts: ModelFacts,
    shape: Attention,
    card: TargetCard,
    *,
    max_seq_len: int,
    max_num_tokens: int,
    max_batch_size: int,
) -> EngineMemory:
    tp = card.tensor_parallel
    total = round((card.memory_gib or 0) * GIB)
    engine = engine_bytes(variant, facts, shape, card)
    activations = max_num_tokens * (4 * shape.hidden_size + 3 * shape.intermediate_size // tp) * 2
    runtime = RUNTIME_BYTES + activations + max_batch_size * shape.vocab_size * 4
    return EngineMemory(
        total=total,
        engine=engine,
        runtime=runtime,
        cache=round(CACHE_SHARE * (total - engine - runtime)),
        bytes_per_token=_cache_bytes_per_token(shape, card, 1 if variant.kv_cache == "fp8" else 2),
        max_seq_len=max_seq_len,
    )


def engine_bytes(variant: Variant, facts: ModelFacts, shape: Attention, card: TargetCard) -> int:
    """Of the largest rank."""
    if variant.scheme == "none" and facts.quantized:
        linears = facts.weight_bytes
    else:
        bits = BITS[variant.scheme]
        linears = facts.linear_parameters * bits // 8
        if bits == 4:
            linears += facts.linear_parameters // getattr(variant, "group_size", GROUP) * 2
    table = shape.vocab_size * shape.hidden_size * 2
    return linears // card.ranks + table + table // card.tensor_parallel


def _cache_bytes_per_token(shape: Attention, card: TargetCard, bytes_per_value: int) -> int:
    layers = ceil(shape.layers / card.pipeline_parallel)
    heads = max(1, shape.kv_heads // card.tensor_parallel)
    return 2 * layers * heads * shape.head_dim * bytes_per_value
