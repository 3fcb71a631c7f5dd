"""The stage that checks a quantized checkpoint, whatever tool wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter

from builders.checkpoint import Checkpoint, read_checkpoint
from builders.integrity import configuration, layers, scales, sidecars, values
from builders.integrity.findings import Finding, Integrity, write_integrity
from builders.model_facts import facts_of_checkpoint
from builders.run_stage import Job
from builders.safetensors_header import BrokenFile
from builders.tensor_values import TensorFiles
from recipes.errors import BadRequest
from recipes.variants import Variant

HELPERS = (
    "configuration", "findings", "formats", "layers", "scales", "sidecars", "values",
)  # fmt: skip
"""Modules of this package that have a say."""


def check(job: Job) -> None:
    """Stage function. Inputs: ``source``, ``output`` (checkpoints). Params: ``variant``."""
    variant: Variant = TypeAdapter[Variant](Variant).validate_python(job.params["variant"])
    found = tuple(findings_on(job.inputs["source"], job.inputs["output"], variant))
    write_integrity(job.output, Integrity(findings=found))


def findings_on(source_folder: Path, output_folder: Path, variant: Variant) -> Iterator[Finding]:
    """Everything wrong with ``output_folder`` as ``variant`` of ``source_folder``."""
    source = read_checkpoint(source_folder, "source", allow_pickle=True)
    try:
        output = read_checkpoint(output_folder, "output")
        tensors = TensorFiles(output_folder)
    except BadRequest as error:
        for problem in error.problems:
            yield Finding(check="files", subject=problem.where, seen=problem.seen, wanted=problem.wanted)
        return
    except (BrokenFile, OSError, ValueError) as error:
        yield Finding(check="files", subject="weights", seen=str(error), wanted="whole safetensors files")
        return
    yield from configuration.findings(source, output)
    yield from sidecars.findings(source_folder, output_folder)
    if source.tensors:
        yield from _weights(source, output, tensors, variant)


def _weights(source: Checkpoint, output: Checkpoint, tensors: TensorFiles, variant: Variant) -> Iterator[Finding]:
    facts = facts_of_checkpoint(source)
    wrong = list(layers.findings(source, output, tensors, facts, variant))
    yield from wrong
    yield from layers.bytes_findings(output, facts, variant)
    yield from scales.findings(output, tensors, facts, variant)
    if not any(finding.check == "shapes" for finding in wrong):
        yield from values.findings(TensorFiles(source.path), tensors, facts.linears, variant)
