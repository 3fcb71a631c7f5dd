"""``config.json`` of an output against the original's: nothing changed but what quantizing adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from builders.checkpoint import Checkpoint
from builders.integrity.findings import Finding
from builders.rope import rope_of

SAME = (
    "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "hidden_act", "tie_word_embeddings",
    "max_position_embeddings", "sliding_window", "bos_token_id", "eos_token_id", "num_local_experts", "num_experts",
)  # fmt: skip
WIDTHS = ("bfloat16", "float16")


def findings(source: Checkpoint, output: Checkpoint) -> Iterator[Finding]:
    before, after = source.config, output.config
    if not after.get("quantization_config"):
        yield _error("quantization_config", "none", "one: servers go by it")
    for name in SAME:
        if name in before and before[name] != after.get(name):
            yield _error(name, repr(after.get(name)), f"{before[name]!r}, as in the source")
    if rope_of(before) != rope_of(after):
        yield _error("rope", _words(after), f"{_words(before)}, as in the source")
    kinds = _dtype(before), _dtype(after)
    if kinds[0] in WIDTHS and kinds[1] is not None and kinds[1] not in WIDTHS:
        yield _error("dtype", str(kinds[1]), f"{kinds[0]}, as in the source, or the other 16-bit type")
    tied = after.get("tie_word_embeddings")
    if tied and _differs(output):
        yield _error("tie_word_embeddings", "true beside an output head of its own", "false, or no lm_head.weight")
    if tied is False and "lm_head.weight" not in output.tensors and _embedding(output):
        yield _error("tie_word_embeddings", "false and no output head", "true, or lm_head.weight")


def _differs(output: Checkpoint) -> bool:
    """A tied head may be written out; then it must be of the embeddings' shape."""
    head, table = output.tensors.get("lm_head.weight"), _embedding(output)
    return head is not None and table is not None and head.shape != table.shape


def _embedding(output: Checkpoint) -> Any:
    return next((tensor for name, tensor in output.tensors.items() if name.endswith("embed_tokens.weight")), None)


def _dtype(config: Mapping[str, Any]) -> str | None:
    return config.get("dtype") or config.get("torch_dtype")


def _words(config: Mapping[str, Any]) -> str:
    base, scaling = rope_of(config)
    return f"base {base:g}{f', {dict(scaling)}' if scaling else ''}"


def _error(name: str, seen: str, wanted: str) -> Finding:
    return Finding(check="config", subject=name, seen=seen, wanted=wanted)
