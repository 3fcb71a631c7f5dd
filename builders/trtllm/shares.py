"""Does each rank hold its own share of the original's weights? Values are compared, not only shapes.

Two ranks written in the wrong order, or gate and up exchanged, have the right shapes and answer nonsense. The first
layer of every rank is widened and laid beside the rows or columns of the original that belong there. Algorithms that
move scales between layers (SmoothQuant, AWQ) have other values by design and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from builders.checkpoint import read_checkpoint
from builders.integrity import Finding
from builders.trtllm.config import Wanted
from builders.trtllm.layout import LINEARS, Shape
from builders.trtllm.tensors import TensorFile
from recipes.errors import BadRequest

COMPARABLE = (None, "NO_QUANT", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "W8A16")
LARGEST_ERROR = 0.1
"""Of the Frobenius norm. Rounding to 8 bits costs under 0.04; another rank's share is off by about 1.4."""


def findings(
    source: Path, file: TensorFile, rank: int, shape: Shape, algorithm: str | None, wanted: Wanted
) -> Iterator[Finding]:
    if algorithm not in COMPARABLE:
        return
    layer = rank // wanted.tensor_parallel * (shape.layers // wanted.pipeline_parallel)
    for linear in LINEARS:
        stored = _stored(file, f"transformer.layers.0.{linear}")
        original = _share(source, linear, layer, rank % wanted.tensor_parallel, wanted.tensor_parallel, shape)
        if stored is None or original is None or stored.shape != original.shape:
            continue  # said already, or another way to name weights
        error = float(np.linalg.norm(stored - original) / (np.linalg.norm(original) or 1.0))
        if not error <= LARGEST_ERROR:
            yield Finding(
                check="shares",
                subject=f"rank{rank} transformer.layers.0.{linear}.weight",
                seen=f"values {error:.2f} of their size away from the original's",
                wanted=f"this rank's share of layer {layer}, within {LARGEST_ERROR}",
            )


def _stored(file: TensorFile, place: str) -> NDArray[np.float32] | None:
    if f"{place}.weight" not in file.tensors:
        return None
    weight = file.values(f"{place}.weight")
    for suffix in ("weights_scaling_factor", "per_channel_scale"):
        if f"{place}.{suffix}" in file.tensors:
            weight = weight * file.values(f"{place}.{suffix}").reshape(-1, 1)
    return weight


def _share(source: Path, linear: str, layer: int, tp_rank: int, tp: int, shape: Shape) -> NDArray[np.float32] | None:
    place = f"model.layers.{layer}"

    def rows(name: str, parts: int = tp, part: int = tp_rank) -> NDArray[np.float32]:
        weight = _read(source, f"{place}.{name}.weight")
        size = weight.shape[0] // parts
        return weight[part * size : (part + 1) * size]

    try:
        match linear:
            case "attention.qkv":
                parts = min(tp, shape.kv_heads)
                kv = (parts, tp_rank * parts // tp)
                return np.concatenate(
                    [rows("self_attn.q_proj"), rows("self_attn.k_proj", *kv), rows("self_attn.v_proj", *kv)]
                )
            case "mlp.fc":
                return rows("mlp.gate_proj")
            case "mlp.gate":
                return rows("mlp.up_proj")
            case _:
                name = "self_attn.o_proj" if linear == "attention.dense" else "mlp.down_proj"
                weight = _read(source, f"{place}.{name}.weight")
                size = weight.shape[1] // tp
                return weight[:, tp_rank * size : (tp_rank + 1) * size]
    except (KeyError, BadRequest):
        return None


def _read(source: Path, name: str) -> NDArray[np.float32]:
    tensors = read_checkpoint(source, "source").tensors
    return TensorFile(source / tensors[name].file).values(name)
