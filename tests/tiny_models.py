"""Random-weight checkpoints of every shape we care for, a second each: numpy and json, no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Family = Literal["llama", "qwen2", "qwen3", "mistral", "gemma", "phi3", "mixtral", "qwen3_moe"]
Dtype = Literal["bfloat16", "float16", "float32"]
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "gemma": "GemmaForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
SHAPES: dict[Family, dict[str, Any]] = {
    "llama": {"shards": 3, "dtype": "float16", "vocab": 333},
    "qwen2": {"tied": True},
    "qwen3": {"head_dim": 128, "dtype": "float32"},
    "mistral": {"convention": "v4"},
    "gemma": {"tied": True, "head_dim": 96},
    "phi3": {},
    "qwen3_moe": {},
    "mixtral": {},
}
"""Family → what is odd about the one tried: shards, types, vocabulary, tied tables, heads, fused layers, experts."""
OWN_FIELDS: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 256},
    "gemma": {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"},
    "phi3": {"pad_token_id": 0, "original_max_position_embeddings": 512},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen3_moe": {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 512, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "norm_topk_prob": True,
    },
}  # fmt: skip
"""Fields that a family's config has beside the common ones."""
EXPERTS = 4
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
MERGES = (("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("Ġ", "the"))
KINDS = {"float32": "F32", "int8": "I8", "uint8": "U8", "int32": "I32", "int64": "I64"}
NAMES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


Tensors = dict[str, NDArray[np.float32]]


def write_shape(folder: Path, family: Family) -> Path:
    """The family's checkpoint in ``folder``, with what ``SHAPES`` makes odd about it."""
    odd: dict[str, Any] = {"convention": "v5", **SHAPES[family]}
    return write_tiny(folder, family, **odd)


def write_tiny(
    folder: Path,
    family: Family = "llama",
    *,
    convention: Literal["v4", "v5"] = "v4",
    dtype: Dtype = "bfloat16",
    tied: bool = False,
    shards: int = 1,
    layers: int = 2,
    hidden: int = 256,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    intermediate: int = 512,
    vocab: int = 320,
    rope_theta: float = 500000.0,
    rope_scaling: dict[str, Any] | None = None,
    seed: int = 0,
    **more: Any,
) -> Path:
    """A checkpoint in ``folder``. ``head_dim`` is ``hidden / heads`` unless given; ``more``: fields for its config."""
    folder.mkdir(parents=True)
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[family]],
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim or hidden // heads,
        "vocab_size": vocab,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "bos_token_id": vocab - 2,
        "eos_token_id": vocab - 1,
    }
    if convention == "v5":
        config |= {"dtype": dtype}
        config["rope_parameters"] = {"rope_theta": rope_theta, "rope_type": "default", **(rope_scaling or {})}
    else:
        config |= {"torch_dtype": dtype, "rope_theta": rope_theta, "rope_scaling": rope_scaling}
    config |= OWN_FIELDS.get(family, {})
    (folder / "config.json").write_text(json.dumps(config | more))
    ids = {"bos_token_id": vocab - 2, "eos_token_id": vocab - 1}
    (folder / "generation_config.json").write_text(json.dumps({"_from_model_config": True, **ids}))
    _write_tokenizer(folder, vocab, convention)
    tensors = _tensors(family, config, np.random.default_rng(seed))
    names = list(tensors)
    files = (
        ["model.safetensors"]
        if shards == 1
        else [f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)]
    )
    parts = {file: {name: tensors[name] for name in names[n::shards]} for n, file in enumerate(files)}
    for file, part in parts.items():
        write_safetensors(folder / file, part, dtype)
    if shards > 1:
        weight_map = {name: file for file, part in parts.items() for name in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def _tensors(family: Family, config: dict[str, Any], rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    hidden, inter, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim

    def matrix(out: int, inp: int) -> NDArray[np.float32]:
        return (rng.standard_normal((out, inp)) * 0.4 / inp**0.5).astype(np.float32)

    def norm(size: int) -> NDArray[np.float32]:
        return (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)

    def attention(place: str) -> Tensors:
        if family == "phi3":
            fused = matrix(q + 2 * kv, hidden)
            return {f"{place}.qkv_proj.weight": fused, f"{place}.o_proj.weight": matrix(hidden, q)}
        found: Tensors = {}
        for name, out, inp in (("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q)):
            found[f"{place}.{name}_proj.weight"] = matrix(out, inp)
            if family == "qwen2" and name != "o":
                found[f"{place}.{name}_proj.bias"] = matrix(out, 1)[:, 0]
        if family.startswith("qwen3"):
            found |= {f"{place}.{name}_norm.weight": norm(dim) for name in ("q", "k")}
        return found

    def experts(place: str, names: tuple[str, str, str]) -> Tensors:
        found = {f"{place}.gate.weight": matrix(EXPERTS, hidden)}
        for expert in range(EXPERTS):
            for name, out, inp in zip(names, (inter, inter, hidden), (hidden, hidden, inter), strict=True):
                found[f"{place}.experts.{expert}.{name}.weight"] = matrix(out, inp)
        return found

    def feed_forward(place: str) -> Tensors:
        match family:
            case "phi3":
                fused = matrix(2 * inter, hidden)
                down = matrix(hidden, inter)
                return {f"{place}.mlp.gate_up_proj.weight": fused, f"{place}.mlp.down_proj.weight": down}
            case "mixtral":
                return experts(f"{place}.block_sparse_moe", ("w1", "w3", "w2"))
            case "qwen3_moe":
                return experts(f"{place}.mlp", ("gate_proj", "up_proj", "down_proj"))
            case _:
                shapes = (("gate", inter, hidden), ("up", inter, hidden), ("down", hidden, inter))
                return {f"{place}.mlp.{name}_proj.weight": matrix(out, inp) for name, out, inp in shapes}

    tensors = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        place = f"model.layers.{layer}"
        tensors |= attention(f"{place}.self_attn") | feed_forward(place)
        tensors |= {f"{place}.{name}_layernorm.weight": norm(hidden) for name in ("input", "post_attention")}
    tensors["model.norm.weight"] = norm(hidden)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = matrix(config["vocab_size"], hidden)
    return tensors


def write_safetensors(path: Path, tensors: dict[str, NDArray[np.float32]], dtype: Dtype = "bfloat16") -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    place = 0
    for name, values in tensors.items():
        data = _pack(values, dtype)
        header[name] = {"dtype": NAMES[dtype], "shape": list(values.shape), "data_offsets": [place, place + len(data)]}
        parts.append(data)
        place += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def write_tensors(path: Path, tensors: dict[str, NDArray[Any]]) -> None:
    """Arrays in their own types; float32 becomes bfloat16 where the name is that of a model's own weight."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    place = 0
    for name, values in tensors.items():
        plain = values.dtype == np.float32 and name.endswith((".weight", ".bias"))
        data = _pack(values, "bfloat16") if plain else np.ascontiguousarray(values).tobytes()
        kind = "BF16" if plain else KINDS[values.dtype.name]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [place, place + len(data)]}
        parts.append(data)
        place += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def read_safetensors(path: Path, *, as_they_are: bool = False) -> dict[str, NDArray[Any]]:
    """Every tensor of a file: floats of any width as float32, integers as they are. Copies, to be changed at will."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    found: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        values = _unpack(raw[begin:end], entry["dtype"]).reshape(entry["shape"])
        found[name] = values.copy() if as_they_are else values
    return found


def _pack(values: NDArray[np.float32], dtype: Dtype) -> bytes:
    if dtype != "bfloat16":
        return values.astype("<f2" if dtype == "float16" else "<f4").tobytes()
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()  # rounded to nearest even


def _unpack(raw: bytes, dtype: str) -> NDArray[Any]:
    match dtype:
        case "BF16":
            return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        case "F16" | "F32":
            return np.frombuffer(raw, "<f2" if dtype == "F16" else "<f4").astype(np.float32)
        case "F8_E4M3":
            return np.array([_e4m3(byte) for byte in range(256)], np.float32)[np.frombuffer(raw, "u1")]
        case _:
            return np.frombuffer(raw, {"I8": "i1", "U8": "u1", "I32": "<i4", "I64": "<i8"}[dtype])


def _e4m3(byte: int) -> float:
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -size if byte > 127 else size


def _write_tokenizer(folder: Path, vocab: int, convention: str) -> None:
    """Byte-level BPE: one token a byte, a few merges, and two special ones at the end of the vocabulary.

    The special ones stand in the model's vocabulary too: left out, they would be numbered after its last entry.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(others))]
    words = [*letters, *("".join(pair) for pair in MERGES)]
    ids = {word: n for n, word in enumerate(words)} | {"<|bos|>": vocab - 2, "<|eos|>": vocab - 1}
    special = [
        {"id": ids[word], "content": word, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for word in ("<|bos|>", "<|eos|>")
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": ids, "merges": [" ".join(pair) for pair in MERGES],
        },
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    kind = "TokenizersBackend" if convention == "v5" else "PreTrainedTokenizerFast"
    settings = {"tokenizer_class": kind, "bos_token": "<|bos|>", "eos_token": "<|eos|>", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
