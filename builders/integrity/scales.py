"""Every scale is finite and not zero, and those that were calibrated are not all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from builders.checkpoint import Checkpoint
from builders.integrity.findings import Finding
from builders.integrity.formats import stored
from builders.model_facts import ModelFacts
from builders.tensor_values import TensorFiles
from recipes.variants import Variant

CACHE = re.compile(r"\.(k|v|kv)_(?:cache_)?scale$")


def findings(output: Checkpoint, tensors: TensorFiles, facts: ModelFacts, variant: Variant) -> Iterator[Finding]:
    inputs: dict[str, float] = {}
    for linear in facts.linears:
        found = stored(tensors, linear.name)
        if found is None:
            continue
        for name in (found.scale, *(other for other in found.others if "scale" in other)):
            yield from _sound(name, tensors)
        weights = tensors.values(found.scale)
        if weights.size > 1 and float(weights.min()) == float(weights.max()):
            yield _error(found.scale, f"{weights.size} scales, all {float(weights.flat[0]):g}", "scales of its rows")
        given = f"{linear.name}.input_scale"
        if given in found.others:
            inputs[given] = float(tensors.values(given).flat[0])
    if len(inputs) > 1 and len(set(inputs.values())) == 1:
        name, value = next(iter(inputs.items()))
        yield _error(name, f"all {len(inputs)} input scales are {value:g}", "what calibration saw in each layer")
    yield from _cache(output, tensors, variant)


def _sound(name: str, tensors: TensorFiles) -> Iterator[Finding]:
    values = tensors.values(name)
    if not np.isfinite(values).all():
        yield _error(name, "NaN or infinite", "finite values")
    elif (values == 0).any():
        yield _error(name, f"{int((values == 0).sum())} zeros", "no zero")


def _cache(output: Checkpoint, tensors: TensorFiles, variant: Variant) -> Iterator[Finding]:
    """Scales of keys and values: there when promised, and calibrated."""
    names = [name for name in tensors if CACHE.search(name)]
    quantization: Mapping[str, Any] = output.config.get("quantization_config") or {}
    promised = variant.kv_cache or quantization.get("kv_cache_scheme")
    if not promised:
        return
    if not names:
        yield _error("key-value cache", "no scales", f"one a layer: kv_cache is {variant.kv_cache}", "cache")
        return
    values = {float(tensors.values(name).flat[0]) for name in names}
    for name in names:
        yield from _sound(name, tensors)
    if values == {1.0}:
        yield Finding(
            check="cache",
            subject="key-value cache",
            seen="every scale is 1.0",
            wanted="calibrated ones",
            severity="warning",  # ModelOpt sets 1.0 where keys and values fit FP8 as they are
        )


def _error(subject: str, seen: str, wanted: str, check: str = "scales") -> Finding:
    return Finding(check=check, subject=subject, seen=seen, wanted=wanted)
