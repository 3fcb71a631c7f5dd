"""What a plan must know of a model before any of it is loaded: its linear layers' shapes and its size."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builders.checkpoint import Checkpoint
from builders.safetensors_header import DTYPE_BITS
from recipes.strict import Strict

EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|wpe|word_embeddings|embed_positions|embed_in)\.weight$")
ROW_PARALLEL = re.compile(r"(^|\.)(o_proj|down_proj|out_proj|c_proj|dense_4h_to_h|w2|attn_output|ffn_down)(\.|$)")
"""Layers that tensor parallelism splits along their input: each rank sees ``in_features / tp``."""

GGUF_ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
}  # fmt: skip
"""GGUF's word → the class that transformers makes of it."""


class Linear(Strict):
    """One weight matrix, ``[out_features, in_features]``."""

    name: str
    in_features: int
    out_features: int

    @property
    def row_parallel(self) -> bool:
        return ROW_PARALLEL.search(self.name) is not None


class Attention(Strict):
    """What decides the size of a key-value cache, and how a model splits over ranks."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_positions: int | None

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        """Bytes that one token of one sequence takes: a key and a value for every layer and KV head."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_value


class ModelFacts(Strict):
    """Shapes and sizes, from headers alone."""

    architecture: str
    parameters: int
    weight_bytes: int
    linears: tuple[Linear, ...]
    """Every two-dimensional weight but embeddings and the output head."""
    quantized: str | None = None
    """``quant_method`` of a checkpoint that is quantized already."""
    desc_act: bool = False
    """Whether a GPTQ checkpoint was rounded in order of activation, which some converters refuse."""
    dtype: str | None = None
    """Type of the unquantized weights as the config names it (``bfloat16``)."""
    attention: Attention | None = None
    """None: a kind of model whose config does not say it in the usual words."""

    @property
    def linear_parameters(self) -> int:
        return sum(linear.in_features * linear.out_features for linear in self.linears)


def facts_of_tensors(config: Mapping[str, Any], tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> ModelFacts:
    """From a config and each tensor's (dtype, shape) as safetensors headers give them."""
    linears = [
        Linear(name=name.removesuffix(".weight"), in_features=shape[1], out_features=shape[0])
        for name, (_, shape) in sorted(tensors.items())
        if len(shape) == 2
        and name.endswith(".weight")
        and not EMBEDDING.search(name)
        and not name.startswith("lm_head")
    ]
    architectures = config.get("architectures") or ["unknown"]
    quantization: dict[str, Any] = config.get("quantization_config") or {}
    return ModelFacts(
        architecture=str(architectures[0]),
        parameters=sum(math.prod(shape) for _, shape in tensors.values()),
        weight_bytes=sum(math.prod(shape) * DTYPE_BITS.get(dtype, 16) // 8 for dtype, shape in tensors.values()),
        linears=tuple(linears),
        quantized=quantization.get("quant_method"),
        desc_act=bool(quantization.get("desc_act")),
        dtype=config.get("torch_dtype") or config.get("dtype"),
        attention=_attention(config),
    )


def _attention(config: Mapping[str, Any]) -> Attention | None:
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return Attention(
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or hidden // heads,
            hidden_size=hidden,
            intermediate_size=config["intermediate_size"],
            vocab_size=config["vocab_size"],
            max_positions=config.get("max_position_embeddings"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def facts_of_checkpoint(checkpoint: Checkpoint) -> ModelFacts:
    tensors = {name: (tensor.dtype, tensor.shape) for name, tensor in checkpoint.tensors.items()}
    return facts_of_tensors(checkpoint.config, tensors)


def facts_of_gguf(file: Path, bytes_per_weight: int) -> ModelFacts:
    """From a GGUF file's own header. Its dimensions run the other way round: the input size comes first."""
    from gguf import GGUFReader  # pyright: ignore[reportMissingTypeStubs]

    reader = GGUFReader(file)
    field = reader.fields.get("general.architecture")
    kind = str(field.contents()) if field is not None else "unknown"
    shapes = {str(tensor.name): tuple(int(n) for n in tensor.shape) for tensor in reader.tensors}
    linears = [
        Linear(name=name.removesuffix(".weight"), in_features=shape[0], out_features=shape[1])
        for name, shape in sorted(shapes.items())
        if name.startswith("blk.") and len(shape) == 2 and name.endswith(".weight")
    ]
    parameters = sum(math.prod(shape) for shape in shapes.values())
    return ModelFacts(
        architecture=GGUF_ARCHITECTURES.get(kind, kind),
        parameters=parameters,
        weight_bytes=parameters * bytes_per_weight,
        linears=tuple(linears),
        dtype="float32" if bytes_per_weight == 4 else "bfloat16",
        attention=_gguf_attention({name: field.contents() for name, field in reader.fields.items()}, kind),
    )


def _gguf_attention(fields: Mapping[str, Any], kind: str) -> Attention | None:
    def number(name: str) -> Any:
        return fields.get(f"{kind}.{name}")

    heads = number("attention.head_count")
    return _attention(
        {
            "num_attention_heads": heads,
            "hidden_size": number("embedding_length"),
            "num_hidden_layers": number("block_count"),
            "num_key_value_heads": number("attention.head_count_kv"),
            "head_dim": number("attention.key_length"),
            "intermediate_size": number("feed_forward_length"),
            "vocab_size": number("vocab_size") or len(fields.get("tokenizer.ggml.tokens") or ()),
            "max_position_embeddings": number("context_length"),
        }
    )
