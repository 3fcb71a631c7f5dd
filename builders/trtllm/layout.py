"""The tensors that a rank of a TensorRT-LLM checkpoint must hold, from the original's own config.

Names, shapes and suffixes: TensorRT-LLM docs, "TensorRT-LLM checkpoint" (architecture/checkpoint), and checkpoints that
ModelOpt 0.47 wrote. Attention heads and MLP features are split over tensor-parallel ranks by output (qkv, fc, gate) or
by input (dense, proj); layers over pipeline ranks; KV heads are repeated when there are fewer than ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LINEARS = ("attention.qkv", "attention.dense", "mlp.fc", "mlp.gate", "mlp.proj")
WIDE = {"F16", "BF16", "F32"}


@dataclass(frozen=True)
class Shape:
    """The original, in the words of its config."""

    architecture: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return cls(
            architecture=str((config.get("architectures") or [""])[0]),
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            vocab=int(config["vocab_size"]),
        )

    def kv_heads_of(self, tensor_parallel: int) -> int:
        """Key-value heads on each rank."""
        return max(1, self.kv_heads // tensor_parallel)

    def linear(self, name: str, tensor_parallel: int) -> tuple[int, int]:
        """``[out_features, in_features]`` of a linear layer on one rank."""
        q = self.heads // tensor_parallel * self.head_dim
        kv = self.kv_heads_of(tensor_parallel) * self.head_dim
        inter = self.intermediate // tensor_parallel
        return {
            "attention.qkv": (q + 2 * kv, self.hidden),
            "attention.dense": (self.hidden, q),
            "mlp.fc": (inter, self.hidden),
            "mlp.gate": (inter, self.hidden),
            "mlp.proj": (self.hidden, inter),
        }[name]


@dataclass(frozen=True)
class Packing:
    """How a quantization algorithm stores one ``[out, in]`` weight."""

    dtypes: frozenset[str]
    rows: int = 1
    """Output features in one stored row."""
    scales: tuple[str, ...] = ()
    """Suffixes that stand beside the weight."""


PACKINGS: dict[str | None, Packing] = {
    None: Packing(frozenset(WIDE)),
    "NO_QUANT": Packing(frozenset(WIDE)),
    "FP8": Packing(frozenset({"F8_E4M3"}), scales=("weights_scaling_factor", "activation_scaling_factor")),
    "FP8_PER_CHANNEL_PER_TOKEN": Packing(frozenset({"F8_E4M3"}), scales=("per_channel_scale",)),
    "W8A16": Packing(frozenset({"I8"}), scales=("weights_scaling_factor",)),
    "W8A8_SQ_PER_CHANNEL": Packing(
        frozenset({"I8"}),
        scales=("weights_scaling_factor", "activation_scaling_factor", "prequant_scaling_factor"),
    ),
    "W4A16_AWQ": Packing(frozenset({"I8"}), rows=2, scales=("weights_scaling_factor", "prequant_scaling_factor")),
    "W4A8_AWQ": Packing(
        frozenset({"I8"}),
        rows=2,
        scales=(
            "weights_scaling_factor",
            "weights_scaling_factor_2",
            "activation_scaling_factor",
            "prequant_scaling_factor",
        ),
    ),
}
"""``quant_algo`` → packing, as ModelOpt writes it. The converters' own formats are not listed: not checked so deep."""


def scale_shape(
    suffix: str, out_features: int, in_features: int, quant_algo: str | None, group: int
) -> tuple[int, ...]:
    """The shape that a scale must have."""
    match suffix:
        case "activation_scaling_factor" | "weights_scaling_factor_2":
            return (1,)
        case "prequant_scaling_factor":
            return (in_features,)
        case "per_channel_scale":
            return (out_features,)
        case _ if quant_algo == "FP8":
            return (1,)
        case _ if quant_algo in ("W4A16_AWQ", "W4A8_AWQ"):
            return (out_features, in_features // group)
        case _:
            return (out_features,)


def norms(shape: Shape) -> dict[str, tuple[int, ...]]:
    """One-dimensional weights of a layer."""
    found: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (shape.hidden,),
        "post_layernorm.weight": (shape.hidden,),
    }
    if shape.architecture == "Qwen3ForCausalLM":
        found |= {"attention.q_layernorm.weight": (shape.head_dim,), "attention.k_layernorm.weight": (shape.head_dim,)}
    return found


def outer(
    shape: Shape, tensor_parallel: int, *, first: bool, last: bool, split_table: bool
) -> dict[str, tuple[int, ...]]:
    """Weights outside the layers: the embedding table on the first pipeline rank, norm and output head on the last."""
    share = -(-shape.vocab // tensor_parallel)
    found: dict[str, tuple[int, ...]] = {}
    if first:
        found["transformer.vocab_embedding.weight"] = (share if split_table else shape.vocab, shape.hidden)
    if last:
        found["transformer.ln_f.weight"] = (shape.hidden,)
        found["lm_head.weight"] = (share, shape.hidden)
    return found
