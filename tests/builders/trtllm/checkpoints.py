"""A TensorRT-LLM checkpoint of a tiny model, written by hand: what the check must find nothing wrong with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builders.rope import rope_of
from tests.tiny_models import read_safetensors, write_safetensors

Arrays = dict[str, NDArray[np.float32]]


def write_checkpoint(source: Path, folder: Path, tp: int = 1, pp: int = 1) -> Path:
    """Unquantized, split over ``tp`` x ``pp`` ranks."""
    folder.mkdir(parents=True)
    config: dict[str, Any] = json.loads((source / "config.json").read_text())
    base, scaling = rope_of(config)
    kind = config["architectures"][0]
    document = {
        "architecture": "QWenForCausalLM" if "Qwen" in kind else kind,
        "dtype": "bfloat16",
        "vocab_size": config["vocab_size"],
        "hidden_size": config["hidden_size"],
        "intermediate_size": config["intermediate_size"],
        "num_hidden_layers": config["num_hidden_layers"],
        "num_attention_heads": config["num_attention_heads"],
        "num_key_value_heads": config["num_key_value_heads"],
        "head_size": config["head_dim"],
        "max_position_embeddings": config["max_position_embeddings"],
        "norm_epsilon": config["rms_norm_eps"],
        "hidden_act": "silu",
        "rotary_base": base,
        "rotary_scaling": dict(scaling) or None,
        "use_parallel_embedding": True,
        "mapping": {"world_size": tp * pp, "tp_size": tp, "pp_size": pp},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }
    if "Qwen" in kind:
        document["qwen_type"] = kind[:5].lower()
    (folder / "config.json").write_text(json.dumps(document))
    weights = read_safetensors(source / "model.safetensors")
    for rank in range(tp * pp):
        write_safetensors(folder / f"rank{rank}.safetensors", _rank(weights, config, rank, tp, pp))
    return folder


def _rank(weights: Arrays, config: dict[str, Any], rank: int, tp: int, pp: int) -> Arrays:
    part, stage, layers = rank % tp, rank // tp, config["num_hidden_layers"] // pp

    def rows(name: str) -> NDArray[np.float32]:
        return np.array_split(weights[name], tp)[part]

    def columns(name: str) -> NDArray[np.float32]:
        return np.array_split(weights[name], tp, axis=1)[part]

    found: Arrays = {}
    if stage == 0:
        found["transformer.vocab_embedding.weight"] = rows("model.embed_tokens.weight")
    if stage == pp - 1:
        found["transformer.ln_f.weight"] = weights["model.norm.weight"]
        found["lm_head.weight"] = rows("lm_head.weight")
    for layer in range(layers):
        ours, theirs = f"transformer.layers.{layer}", f"model.layers.{stage * layers + layer}"
        for kind in ("weight", "bias"):
            if f"{theirs}.self_attn.q_proj.{kind}" in weights:
                qkv = [rows(f"{theirs}.self_attn.{name}_proj.{kind}") for name in "qkv"]
                found[f"{ours}.attention.qkv.{kind}"] = np.concatenate(qkv)
        found |= {
            f"{ours}.attention.dense.weight": columns(f"{theirs}.self_attn.o_proj.weight"),
            f"{ours}.mlp.fc.weight": rows(f"{theirs}.mlp.gate_proj.weight"),
            f"{ours}.mlp.gate.weight": rows(f"{theirs}.mlp.up_proj.weight"),
            f"{ours}.mlp.proj.weight": columns(f"{theirs}.mlp.down_proj.weight"),
            f"{ours}.input_layernorm.weight": weights[f"{theirs}.input_layernorm.weight"],
            f"{ours}.post_layernorm.weight": weights[f"{theirs}.post_attention_layernorm.weight"],
        }
        for name in "qk":
            if f"{theirs}.self_attn.{name}_norm.weight" in weights:
                found[f"{ours}.attention.{name}_layernorm.weight"] = weights[f"{theirs}.self_attn.{name}_norm.weight"]
    return found
