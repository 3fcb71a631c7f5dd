"""``config.json`` of a TensorRT-LLM checkpoint against the original's and against what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from builders.integrity import Finding
from builders.rope import rope_of

MANDATORY = (
    "architecture", "dtype", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "hidden_act",
    "mapping", "quantization",
)  # fmt: skip
SAME = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_key_value_heads",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "norm_epsilon": "rms_norm_eps",
    "head_size": "head_dim",
    "max_position_embeddings": "max_position_embeddings",
    "hidden_act": "hidden_act",
}
"""Field of the checkpoint → field of the original. Where the original has none, nothing is wanted."""
ARCHITECTURES = {
    "LlamaForCausalLM": ("LlamaForCausalLM",),
    "MistralForCausalLM": ("MistralForCausalLM", "LlamaForCausalLM"),
    "Qwen2ForCausalLM": ("QWenForCausalLM", "Qwen2ForCausalLM"),
    "Qwen3ForCausalLM": ("QWenForCausalLM", "Qwen3ForCausalLM"),
}
QWEN_TYPES = {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}


@dataclass(frozen=True)
class Wanted:
    """What the plan asked for."""

    quant_algo: str | None
    kv_cache: str | None
    tensor_parallel: int
    pipeline_parallel: int


def findings(original: Mapping[str, Any], config: Mapping[str, Any], wanted: Wanted) -> Iterator[Finding]:
    if "architectures" in config and "architecture" not in config:
        yield _error(
            "format", "config.json", "a Hugging Face checkpoint", "a TensorRT-LLM one: trtllm-build takes no other"
        )
        return
    for name in MANDATORY:
        if name not in config:
            yield _error("config", name, "missing", "there: TensorRT-LLM can't load without it")
    yield from _same(original, config)
    yield from _rope(original, config)
    yield from _mapping(config, wanted)
    quantization: Mapping[str, Any] = config.get("quantization") or {}
    for name, value in (("quant_algo", wanted.quant_algo), ("kv_cache_quant_algo", (wanted.kv_cache or "").upper())):
        seen = quantization.get(name)
        if (seen or "") != (value or "") and not (seen == "NO_QUANT" and not value):
            yield _error("config", f"quantization.{name}", repr(seen), repr(value or None))
    if str(wanted.quant_algo).endswith("AWQ") and not quantization.get("group_size"):
        yield _error("config", "quantization.group_size", "missing", "the size of AWQ's groups")


def _same(original: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Finding]:
    kind = str((original.get("architectures") or [""])[0])
    if config.get("architecture") not in ARCHITECTURES.get(kind, ()):
        yield _error(
            "config", "architecture", repr(config.get("architecture")), " or ".join(ARCHITECTURES.get(kind, ("?",)))
        )
    if kind in QWEN_TYPES and config.get("qwen_type") != QWEN_TYPES[kind]:
        yield _error("config", "qwen_type", repr(config.get("qwen_type")), repr(QWEN_TYPES[kind]))
    for ours, theirs in SAME.items():
        before, after = original.get(theirs), config.get(ours)
        if ours == "vocab_size" and _is_padded(before, after, config):
            continue
        if before is not None and after != before:
            yield _error("config", ours, repr(after), f"{before!r}, the original's {theirs}")


def _is_padded(before: Any, after: Any, config: Mapping[str, Any]) -> bool:
    """AWQ's kernels want a multiple of 64 rows of output; ModelOpt fills the vocabulary up to one a rank."""
    quantization: Mapping[str, Any] = config.get("quantization") or {}
    mapping: Mapping[str, Any] = config.get("mapping") or {}
    algorithm, step = str(quantization.get("quant_algo")), 64 * int(mapping.get("tp_size") or 1)
    return isinstance(after, int) and "AWQ" in algorithm and after % 64 == 0 and 0 <= after - before < step


def _rope(original: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Finding]:
    """ModelOpt under some transformers versions drops both, and the model then answers nonsense past a few words."""
    base, scaling = rope_of(original)
    if config.get("rotary_base") is None:
        yield _error("config", "rotary_base", "missing", f"{base}, the original's rope_theta")
    elif float(config["rotary_base"]) != base:
        yield _error("config", "rotary_base", repr(config["rotary_base"]), f"{base}, the original's rope_theta")
    kept: Mapping[str, Any] = config.get("rotary_scaling") or {}
    if scaling and not kept:
        yield _error("config", "rotary_scaling", "missing", f"{dict(scaling)}, the original's")
    for name, value in scaling.items():
        seen = kept.get(name, kept.get("type") if name == "rope_type" else None)
        if kept and seen != value:
            yield _error("config", f"rotary_scaling.{name}", repr(seen), f"{value!r}, the original's")
    if kept and not scaling:
        yield _error("config", "rotary_scaling", repr(dict(kept)), "none: the original has none")


def _mapping(config: Mapping[str, Any], wanted: Wanted) -> Iterator[Finding]:
    mapping: Mapping[str, Any] = config.get("mapping") or {}
    tp, pp = wanted.tensor_parallel, wanted.pipeline_parallel
    for name, value in (("world_size", tp * pp), ("tp_size", tp), ("pp_size", pp)):
        if mapping.get(name) != value:
            yield _error("ranks", f"mapping.{name}", repr(mapping.get(name)), f"{value}, the target's")


def _error(check: str, subject: str, seen: str, wanted: str) -> Finding:
    return Finding(check=check, subject=subject, seen=seen, wanted=wanted)
