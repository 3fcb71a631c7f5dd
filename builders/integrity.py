"""Is the quantized checkpoint what it should be? Read from its own files, not from what the tool says of it.

Findings are written to ``integrity.json``; any of severity ``error`` makes the variant ANOMALOUS, and it is neither
evaluated nor published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from builders.checkpoint import Checkpoint, read_checkpoint
from builders.estimates import quantized_bytes
from builders.model_facts import facts_of_checkpoint
from builders.run_stage import Job
from builders.safetensors_header import Tensor
from recipes.errors import BadRequest
from recipes.strict import Strict
from recipes.variants import Variant

SIDECARS = ("*.json", "*.jinja", "*.model", "*.txt", "*.py", "LICENSE*", "*.md")
NOT_CARRIED = ("config.json", "model.safetensors.index.json", "README.md")
"""Files that the output has its own of."""
BYTES_TOLERANCE = 0.05
SAME_CONFIG = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "tie_word_embeddings",
    "eos_token_id",
)


class Finding(Strict):
    """One thing that is not as it should be."""

    check: str
    subject: str
    """Layer or file."""
    seen: str
    wanted: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.check}: {self.subject}: {self.seen}; wanted {self.wanted}"


class Integrity(Strict):
    """All findings on one variant."""

    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")


def check(job: Job) -> None:
    """Stage function. Inputs: ``source``, ``output`` (checkpoints). Params: ``variant``."""
    variant: Variant = TypeAdapter[Variant](Variant).validate_python(job.params["variant"])
    integrity = Integrity(findings=tuple(findings_on(job.inputs["source"], job.inputs["output"], variant)))
    (job.output / "integrity.json").write_text(integrity.model_dump_json(indent=1), encoding="utf-8")


def read_integrity(folder: Path) -> Integrity:
    return Integrity.model_validate_json((folder / "integrity.json").read_bytes())


def findings_on(source_folder: Path, output_folder: Path, variant: Variant) -> Iterator[Finding]:
    """Everything wrong with ``output_folder`` as ``variant`` of ``source_folder``."""
    source = read_checkpoint(source_folder, "source", allow_pickle=True)
    try:
        output = read_checkpoint(output_folder, "output")
    except BadRequest as error:
        for problem in error.problems:
            yield Finding(check="files", subject=problem.where, seen=problem.seen, wanted=problem.wanted)
        return
    yield from _config(source, output)
    if source.tensors:
        yield from _tensors(source, output)
        yield from _bytes(source, output, variant)
    yield from _sidecars(source_folder, output_folder)


def _config(source: Checkpoint, output: Checkpoint) -> Iterator[Finding]:
    if "quantization_config" not in output.config:
        yield Finding(
            check="config", subject="config.json", seen="no quantization_config", wanted="one: servers go by it"
        )
    for name in SAME_CONFIG:
        before, after = source.config.get(name), output.config.get(name)
        if before != after:
            yield Finding(check="config", subject=name, seen=repr(after), wanted=f"{before!r}, as in the source")


def _tensors(source: Checkpoint, output: Checkpoint) -> Iterator[Finding]:
    """Every tensor of the source is there, as it was or in the parts that the scheme makes of it."""
    ignored: list[str] = output.config.get("quantization_config", {}).get("ignore") or []
    quantized = 0
    linears = {linear.name for linear in facts_of_checkpoint(source).linears}
    for name, before in source.tensors.items():
        layer = name.removesuffix(".weight")
        after = next((output.tensors[form] for form in _forms(name) if form in output.tensors), None)
        if after is None:
            tied = name == "lm_head.weight" and output.config.get("tie_word_embeddings")
            if not tied:
                yield Finding(check="tensors", subject=name, seen="missing", wanted="every tensor of the source")
        elif name.endswith(".weight") and f"{name}_scale" in output.tensors:
            quantized += 1
            yield from _scale(name, before, output.tensors[f"{name}_scale"])
        elif f"{layer}.scales" in output.tensors:
            quantized += 1
        elif after.shape != before.shape:
            yield Finding(check="tensors", subject=name, seen=f"shape {after.shape}", wanted=f"{before.shape}")
        elif layer in linears and layer not in ignored:
            yield Finding(
                check="tensors",
                subject=name,
                seen="left unquantized",
                wanted="quantized, or named in quantization_config.ignore",
            )
    if not quantized:
        yield Finding(check="tensors", subject="all", seen="nothing is quantized", wanted="quantized linear layers")


def _forms(name: str) -> tuple[str, ...]:
    """What a weight may be called in the output: itself, packed by compressed-tensors, or by AWQ and GPTQ."""
    return name, f"{name}_packed", f"{name.removesuffix('.weight')}.qweight"


def _scale(name: str, weight: Tensor, scale: Tensor) -> Iterator[Finding]:
    rows = scale.shape[0] if scale.shape else 1
    if rows not in (1, weight.shape[0]):
        yield Finding(
            check="scales",
            subject=f"{name}_scale",
            seen=f"shape {scale.shape}",
            wanted=f"{weight.shape[0]} rows, or one",
        )


def _bytes(source: Checkpoint, output: Checkpoint, variant: Variant) -> Iterator[Finding]:
    expected, seen = quantized_bytes(variant, facts_of_checkpoint(source)), output.weight_bytes
    own_format = output.config.get("quantization_config", {}).get("quant_method") == "compressed-tensors"
    if own_format and variant.keep == ("lm_head",) and abs(seen - expected) > BYTES_TOLERANCE * expected:
        yield Finding(
            check="bytes", subject="weights", seen=str(seen), wanted=f"{expected} within {BYTES_TOLERANCE:.0%}"
        )


def _sidecars(source: Path, output: Path) -> Iterator[Finding]:
    for path in sorted({path for pattern in SIDECARS for path in source.glob(pattern)}):
        if path.name not in NOT_CARRIED and not (output / path.name).is_file():
            yield Finding(check="sidecars", subject=path.name, seen="missing", wanted="carried over from the source")
    template = _chat_template(source)
    if template != _chat_template(output):
        yield Finding(check="sidecars", subject="chat template", seen="changed", wanted="the source's")


def _chat_template(folder: Path) -> Any:
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    config = folder / "tokenizer_config.json"
    return json.loads(config.read_text(encoding="utf-8")).get("chat_template") if config.is_file() else None
