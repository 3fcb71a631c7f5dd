"""Every tensor of the original is accounted for: quantized, deliberately kept, or tied. None missing, none extra."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from builders.checkpoint import Checkpoint
from builders.estimates import quantized_bytes
from builders.integrity.findings import Finding
from builders.integrity.formats import group_size, stored, wanted_shapes
from builders.model_facts import ModelFacts
from builders.tensor_values import TensorFiles
from recipes.variants import Variant

BYTES_TOLERANCE = 0.05
CACHE_SCALES = re.compile(r"\.(k|v|kv)_(proj\.)?(scale|cache_scale)$|\.(k|v)_proj\.(k|v)_scale$")


def findings(
    source: Checkpoint, output: Checkpoint, tensors: TensorFiles, facts: ModelFacts, variant: Variant
) -> Iterator[Finding]:
    quantization: Mapping[str, Any] = output.config.get("quantization_config") or {}
    linears = {linear.name: linear for linear in facts.linears}
    grouped = variant.scheme in ("gptq", "awq", "int4", "w4a8-awq", "nvfp4")
    group = getattr(variant, "group_size", None) or group_size(quantization) if grouped else None
    explained: set[str] = set()
    quantized = 0
    for name, before in source.tensors.items():
        layer = name.rpartition(".")[0]
        found = stored(tensors, layer) if name.endswith(".weight") else None
        if found is not None:
            quantized += 1
            explained |= {found.weight, found.scale, *found.others}
            yield from _shapes(tensors, found, before.shape, group)
            if layer not in linears:
                yield _error("tensors", name, "quantized", "left alone: it is no linear layer")
        elif name in output.tensors:
            explained.add(name)
            after = output.tensors[name]
            if after.shape != before.shape:
                yield _error("shapes", name, f"shape {list(after.shape)}", f"{list(before.shape)}")
            elif name.endswith(".weight") and layer in linears and not kept(layer, quantization):
                yield _error("tensors", name, "left unquantized", "quantized, or named in quantization_config.ignore")
        elif not (name == "lm_head.weight" and output.config.get("tie_word_embeddings")):
            yield _error("tensors", name, "missing", "every tensor of the source")
    extra = [name for name in output.tensors if name not in explained and name not in source.tensors]
    for name in extra:
        if not CACHE_SCALES.search(name) and name != "lm_head.weight":
            yield _error("tensors", name, "not in the source", "nothing but the source's layers")
    if not quantized:
        yield _error("tensors", "all", "nothing is quantized", "quantized linear layers")


def kept(layer: str, quantization: Mapping[str, Any]) -> bool:
    """Whether the config says that a layer is left alone."""
    names = [*(quantization.get("ignore") or ()), *(quantization.get("modules_to_not_convert") or ())]
    return any(
        re.match(name[3:], layer) is not None if name.startswith("re:") else layer == name or layer.endswith(f".{name}")
        for name in names
    )


def _shapes(tensors: TensorFiles, found: Any, shape: tuple[int, ...], group: int | None) -> Iterator[Finding]:
    if len(shape) != 2:
        return
    for name, wanted in wanted_shapes(found, shape[0], shape[1], group).items():
        seen = tensors.info(name).shape
        whole = name == found.scale and not group and seen in ((), (1,), (shape[0], 1), (shape[0],))
        if seen != wanted and not whole:
            yield _error(
                "shapes", name, f"shape {list(seen)}", f"{list(wanted)} for {list(shape)} in groups of {group}"
            )


def bytes_findings(output: Checkpoint, facts: ModelFacts, variant: Variant) -> Iterator[Finding]:
    """Bytes fell by what the scheme promises."""
    quantization: Mapping[str, Any] = output.config.get("quantization_config") or {}
    if variant.keep != ("lm_head",) or quantization.get("quant_method") != "compressed-tensors":
        return
    expected, seen = quantized_bytes(variant, facts), output.weight_bytes
    if abs(seen - expected) > BYTES_TOLERANCE * expected:
        yield _error("bytes", "weights", str(seen), f"{expected} within {BYTES_TOLERANCE:.0%}")


def _error(check: str, subject: str, seen: str, wanted: str) -> Finding:
    return Finding(check=check, subject=subject, seen=seen, wanted=wanted)
