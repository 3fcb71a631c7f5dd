"""Facts of well-known models, as their headers give them."""

from __future__ import annotations

from builders.model_facts import ModelFacts, facts_of_tensors

CONFIGS = {
    "qwen2.5-7b": {
        "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
        "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
    },
    "llama-3.1-8b": {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    },
    "llama-3.1-70b": {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    },
}  # fmt: skip


def tensors_of(name: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Every weight of the model: type and shape."""
    config = CONFIGS[name]
    hidden, inter, vocab = (config[key] for key in ("hidden_size", "intermediate_size", "vocab_size"))
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    found = {"model.embed_tokens.weight": (vocab, hidden), "lm_head.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        place = f"model.layers.{layer}"
        for part, shape in {
            "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inter, hidden), "mlp.up_proj": (inter, hidden),
            "mlp.down_proj": (hidden, inter),
        }.items():  # fmt: skip
            found[f"{place}.{part}.weight"] = shape
    return {tensor: ("BF16", shape) for tensor, shape in found.items()}


def facts(name: str, **changes: object) -> ModelFacts:
    return facts_of_tensors(CONFIGS[name] | changes, tensors_of(name))
