"""Does each rank hold its own share of the original's weights? Values are compared, not only shapes.

Two ranks written in the wrong order, or gate and up exchanged, have the right shapes and answer nonsense. The first
layer of every rank is widened, scaled back (SmoothQuant and AWQ move scales of inputs into weights) and laid beside
the rows or columns of the original that belong there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from builders.checkpoint import read_checkpoint
from builders.integrity import Finding
from builders.tensor_values import TensorFile
from builders.trtllm.config import Wanted
from builders.trtllm.layout import LINEARS, Shape
from recipes.errors import BadRequest

LARGEST_ERRORS: dict[str | None, float] = {
    None: 0.1,
    "NO_QUANT": 0.1,
    "FP8": 0.1,
    "FP8_PER_CHANNEL_PER_TOKEN": 0.1,
    "W8A16": 0.1,
    "W8A8_SQ_PER_CHANNEL": 0.1,
    "W4A16_AWQ": 0.4,
    "W4A8_AWQ": 0.4,
}
"""Of the Frobenius norm. Rounding to 8 bits costs under 0.04, to 4 bits about 0.12 on random weights; another rank's
share is off by about 1.4."""


def findings(
    source: Path, file: TensorFile, rank: int, shape: Shape, algorithm: str | None, wanted: Wanted
) -> Iterator[Finding]:
    largest = LARGEST_ERRORS.get(algorithm)
    if largest is None:
        return
    layer = rank // wanted.tensor_parallel * (shape.layers // wanted.pipeline_parallel)
    for linear in LINEARS:
        stored = _stored(file, f"transformer.layers.0.{linear}")
        original = _share(source, linear, layer, rank % wanted.tensor_parallel, wanted.tensor_parallel, shape)
        if stored is None or original is None or stored.shape != original.shape:
            continue  # said already, or another way to name weights
        error = float(np.linalg.norm(stored - original) / (np.linalg.norm(original) or 1.0))
        if not error <= largest:
            yield Finding(
                check="shares",
                subject=f"rank{rank} transformer.layers.0.{linear}.weight",
                seen=f"values {error:.2f} of their size away from the original's",
                wanted=f"this rank's share of layer {layer}, within {largest}",
            )


def _stored(file: TensorFile, place: str) -> NDArray[np.float32] | None:
    """A stored weight as the ``[out, in]`` matrix that it stands for."""
    if f"{place}.weight" not in file.tensors:
        return None
    weight = file.values(f"{place}.weight")
    names = (f"{place}.weights_scaling_factor", f"{place}.per_channel_scale")
    scale = next((file.values(name) for name in names if name in file.tensors), None)
    if scale is None:
        return weight
    if scale.ndim == 2:
        weight = _four_bits(weight)
        scale = scale.repeat(weight.shape[1] // scale.shape[1], axis=1)
    weight = weight * scale.reshape(scale.shape[0], -1)
    moved = f"{place}.prequant_scaling_factor"
    return weight * file.values(moved) if moved in file.tensors else weight


def _four_bits(packed: NDArray[np.float32]) -> NDArray[np.float32]:
    """Two output rows in a byte, the first in its lower half, each from -8 to 7."""
    bytes_ = packed.astype(np.int8).view(np.uint8)
    halves = [((bytes_ >> shift & 15) ^ 8).astype(np.float32) - 8 for shift in (0, 4)]
    return np.stack(halves, axis=1).reshape(-1, packed.shape[1])


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
