"""The check of a GGUF file: its header and tensors against the original's config, and what it answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from builders.checkpoint import read_checkpoint
from builders.integrity.findings import Finding, Integrity, write_integrity
from builders.rope import rope_of
from builders.run_stage import Job

KINDS = {
    "f16": {"F16"},
    "q8_0": {"Q8_0"},
    "q6_k": {"Q6_K", "Q8_0"},
    "q5_k_m": {"Q5_K", "Q6_K", "Q5_1", "Q8_0"},
    "q4_k_m": {"Q4_K", "Q6_K", "Q5_0", "Q8_0"},
    "q4_0": {"Q4_0", "Q4_1", "Q6_K", "Q8_0"},
}
"""File type → what its matrices may be: llama.cpp gives some layers more bits, and odd widths smaller blocks."""
SAME = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings",
}
PER_LAYER = 9
"""Tensors of a layer of the Llama family, at least."""


def check(job: Job) -> None:
    """Stage function. Inputs: ``source`` (checkpoint), ``output``. Params: ``type``."""
    found = tuple(findings_on(job.inputs["source"], job.inputs["output"], job.params["type"]))
    write_integrity(job.output, Integrity(findings=found))


def findings_on(source: Path, output: Path, kind: str) -> Iterator[Finding]:
    from gguf import GGUFReader  # pyright: ignore[reportMissingTypeStubs]

    config = read_checkpoint(source, "source", allow_pickle=True).config
    files = sorted(output.glob("*.gguf"))
    if len(files) != 1:
        yield _error("files", "output", f"{len(files)} GGUF files", "one")
        return
    try:
        reader = GGUFReader(files[0])
    except (ValueError, OSError, IndexError) as error:
        yield _error("files", files[0].name, f"unreadable ({error})", "a whole GGUF file")
        return
    fields = {name: field.contents() for name, field in reader.fields.items()}
    yield from _header(fields, config)
    layers = int(config["num_hidden_layers"])
    names = {str(tensor.name) for tensor in reader.tensors}
    missing = [n for n in range(layers) if sum(name.startswith(f"blk.{n}.") for name in names) < PER_LAYER]
    if missing:
        yield _error(
            "tensors", f"blk.{missing[0]}", "tensors missing", f"{PER_LAYER} or more in each of {layers} layers"
        )
    for tensor in reader.tensors:
        name, stored = str(tensor.name), tensor.tensor_type.name
        if name.startswith("blk.") and len(tensor.shape) == 2 and stored not in KINDS[kind]:
            yield _error("tensors", name, f"type {stored}", " or ".join(sorted(KINDS[kind])))
    yield from _answers(output)


def _header(fields: dict[str, Any], config: dict[str, Any]) -> Iterator[Finding]:
    family = str(fields.get("general.architecture"))
    for ours, theirs in SAME.items():
        before, after = config.get(theirs), fields.get(f"{family}.{ours}")
        if before is not None and after != before:
            yield _error("config", f"{family}.{ours}", repr(after), f"{before!r}, the source's {theirs}")
    base, after = rope_of(config)[0], fields.get(f"{family}.rope.freq_base")
    if after is not None and abs(float(after) - base) > 1e-3 * base:
        yield _error("config", f"{family}.rope.freq_base", repr(after), f"{base:g}, the source's")
    eos: int | list[int] | None = config.get("eos_token_id")
    after = fields.get("tokenizer.ggml.eos_token_id")
    if eos is not None and after not in (eos if isinstance(eos, list) else [eos]):
        yield _error("config", "tokenizer.ggml.eos_token_id", repr(after), repr(eos))


def _answers(output: Path) -> Iterator[Finding]:
    answers: dict[str, Any] = json.loads((output / "answers.json").read_text(encoding="utf-8"))
    for prompt, answer in answers.items():
        if not answer["same_tokens"]:
            yield _error("tokens", repr(prompt), "other token ids", "the source's")
    if not any(answer["text"].strip() for answer in answers.values()):
        yield _error("life", "every prompt", "an empty answer", "text")


def _error(check: str, subject: str, seen: str, wanted: str) -> Finding:
    return Finding(check=check, subject=subject, seen=seen, wanted=wanted)
