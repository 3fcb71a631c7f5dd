"""Is a TensorRT-LLM checkpoint what it should be? Read from its config and every rank, not from what its maker says.

What is checked: the config against the original's (rope and all), the files against the mapping, every tensor's name,
type and shape on every rank, every scale's value, and that each rank holds its own share of the original's weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from builders.integrity import Finding, Integrity, write_integrity
from builders.run_stage import Job
from builders.safetensors_header import BrokenFile
from builders.tensor_values import TensorFile
from builders.trtllm import config as configs
from builders.trtllm import shares
from builders.trtllm.layout import LINEARS, PACKINGS, WIDE, Shape, norms, outer, scale_shape

SCALES = ("_scaling_factor", "_scaling_factor_2", "per_channel_scale")


def check(job: Job) -> None:
    """Stage function. Inputs: ``source``, ``output``. Params: ``quant_algo``, ``kv_cache``, ``tensor_parallel``,
    ``pipeline_parallel``."""
    wanted = configs.Wanted(
        quant_algo=job.params["quant_algo"],
        kv_cache=job.params["kv_cache"],
        tensor_parallel=job.params["tensor_parallel"],
        pipeline_parallel=job.params["pipeline_parallel"],
    )
    found = tuple(findings_on(job.inputs["source"], job.inputs["output"], wanted))
    write_integrity(job.output, Integrity(findings=found))


def findings_on(source: Path, output: Path, wanted: configs.Wanted) -> Iterator[Finding]:
    """Everything wrong with ``output`` as the TensorRT-LLM checkpoint of ``source``."""
    try:
        original: dict[str, Any] = json.loads((source / "config.json").read_text(encoding="utf-8"))
        config: dict[str, Any] = json.loads((output / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield _error("config", "config.json", f"unreadable ({error})", "the config of a checkpoint")
        return
    wrong = list(configs.findings(original, config, wanted))
    yield from wrong
    if any(finding.check == "format" for finding in wrong):
        return
    ranks = wanted.tensor_parallel * wanted.pipeline_parallel
    names = {path.name for path in output.glob("rank*.safetensors")}
    expected = {f"rank{n}.safetensors" for n in range(ranks)}
    if names != expected:
        listed = ", ".join(sorted(names)) or "none"
        yield _error("ranks", "files", f"{len(names)} rank files ({listed})", f"{ranks}: one a rank of the mapping")
        return
    quantization: Mapping[str, Any] = config.get("quantization") or {}
    algorithm = quantization.get("quant_algo")
    if algorithm not in PACKINGS:
        yield Finding(
            check="tensors",
            subject="all",
            seen=f"quant_algo {algorithm}, whose layout is not known here",
            wanted="names and shapes checked by hand",
            severity="warning",
        )
    for rank in range(ranks):
        try:
            file = TensorFile(output / f"rank{rank}.safetensors")
        except (BrokenFile, OSError) as error:
            yield _error("files", f"rank{rank}.safetensors", str(error), "a whole safetensors file")
            continue
        yield from _rank(file, rank, Shape.of(original), config, wanted)
        if not wrong:
            yield from shares.findings(source, file, rank, Shape.of(original), algorithm, wanted)


def _rank(
    file: TensorFile, rank: int, shape: Shape, config: Mapping[str, Any], wanted: configs.Wanted
) -> Iterator[Finding]:
    tp, pp = wanted.tensor_parallel, wanted.pipeline_parallel
    stage, layers = rank // tp, shape.layers // pp
    quantization: Mapping[str, Any] = config.get("quantization") or {}
    algorithm = quantization.get("quant_algo")
    if isinstance(config.get("vocab_size"), int):
        shape = replace(shape, vocab=config["vocab_size"])  # compared with the original's already
    expected = outer(
        shape, tp, first=stage == 0, last=stage == pp - 1, split_table=bool(config.get("use_parallel_embedding"))
    )
    for layer in range(layers):
        place = f"transformer.layers.{layer}"
        expected |= {f"{place}.{name}": size for name, size in norms(shape).items()}
        if shape.architecture == "Qwen2ForCausalLM":
            expected[f"{place}.attention.qkv.bias"] = (shape.linear("attention.qkv", tp)[0],)
        if wanted.kv_cache:
            expected[f"{place}.attention.kv_cache_scaling_factor"] = (1,)
    for name, size in expected.items():
        yield from _tensor(file, rank, name, size, WIDE)
    if algorithm in PACKINGS:
        packing, group = PACKINGS[algorithm], int(quantization.get("group_size") or 128)
        for layer in range(layers):
            for linear in LINEARS:
                place = f"transformer.layers.{layer}.{linear}"
                out, inp = shape.linear(linear, tp)
                yield from _tensor(file, rank, f"{place}.weight", (out // packing.rows, inp), packing.dtypes)
                for suffix in packing.scales:
                    size = scale_shape(suffix, out, inp, algorithm, group)
                    yield from _tensor(file, rank, f"{place}.{suffix}", size, WIDE)
    for name in file.tensors:
        if name.endswith(SCALES):
            yield from _scale(file, rank, name)
        elif ".layers." in name and int(name.split(".layers.")[1].split(".")[0]) >= layers:
            yield _error("tensors", f"rank{rank} {name}", "a layer too many", f"{layers} layers a rank")


def _tensor(
    file: TensorFile, rank: int, name: str, size: tuple[int, ...], dtypes: frozenset[str] | set[str]
) -> Iterator[Finding]:
    tensor, subject = file.tensors.get(name), f"rank{rank} {name}"
    if tensor is None:
        yield _error("tensors", subject, "missing", f"shape {list(size)}")
        return
    if tensor.shape != size and not (size == (1,) and tensor.shape == ()):
        yield _error("tensors", subject, f"shape {list(tensor.shape)}", f"{list(size)}")
    if tensor.dtype not in dtypes:
        yield _error("tensors", subject, f"type {tensor.dtype}", " or ".join(sorted(dtypes)))


def _scale(file: TensorFile, rank: int, name: str) -> Iterator[Finding]:
    values = file.values(name)
    if not np.isfinite(values).all():
        yield _error("scales", f"rank{rank} {name}", "NaN or infinite", "finite values")
    elif not (values > 0).all():
        yield _error("scales", f"rank{rank} {name}", f"{float(values.min())}", "values over zero")


def _error(check: str, subject: str, seen: str, wanted: str) -> Finding:
    return Finding(check=check, subject=subject, seen=seen, wanted=wanted)
