"""How each format stores a quantized linear layer, and how to read the matrix back.

compressed-tensors: docs of compressed-tensors, "Quantization format". AWQ: AutoAWQ's GEMM packing, eight outputs in an
integer in the order 0 2 4 6 1 3 5 7. GPTQ: eight inputs in an integer, zero points stored less one. ModelOpt: its
unified checkpoint, two outputs in a byte for INT4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builders.tensor_values import Floats, TensorFiles

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Place in the integer → which of the eight outputs stands there."""
NIBBLES = np.arange(8, dtype=np.uint32) * 4
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Stored:
    """One layer as an output stores it."""

    kind: str
    """``float``, ``int``, ``packed`` (compressed-tensors); ``awq``, ``gptq``; ``modelopt-int4``, ``modelopt-fp4``."""
    weight: str
    """Name of the tensor that holds the numbers."""
    scale: str
    others: tuple[str, ...] = ()
    """Zero points, second scales, scales of inputs, and what else belongs to it."""


def stored(tensors: TensorFiles, layer: str) -> Stored | None:
    """How the layer is quantized. None: it is not."""

    def there(*names: str) -> tuple[str, ...]:
        return tuple(f"{layer}.{name}" for name in names if f"{layer}.{name}" in tensors)

    if f"{layer}.qweight" in tensors:
        kind = "gptq" if f"{layer}.g_idx" in tensors else "awq"
        return Stored(kind, f"{layer}.qweight", f"{layer}.scales", there("qzeros", "g_idx", "bias"))
    scale = f"{layer}.weight_scale"
    if scale not in tensors:
        return None
    others = there(
        "weight_zero_point", "weight_shape", "weight_g_idx", "input_scale", "weight_scale_2", "pre_quant_scale", "bias"
    )
    if f"{layer}.weight_packed" in tensors:
        return Stored("packed", f"{layer}.weight_packed", scale, others)
    if f"{layer}.weight" not in tensors:
        return None
    dtype = tensors.info(f"{layer}.weight").dtype
    if dtype == "U8":
        fp4 = tensors.info(scale).dtype == "F8_E4M3"
        return Stored("modelopt-fp4" if fp4 else "modelopt-int4", f"{layer}.weight", scale, others)
    return Stored("float" if dtype == "F8_E4M3" else "int", f"{layer}.weight", scale, others)


def wanted_shapes(found: Stored, out: int, inp: int, group: int | None) -> dict[str, tuple[int, ...]]:
    """Shapes that follow from the layer's ``[out, in]`` and the group size (None: one scale a row, or one in all)."""
    groups = inp // group if group else 1
    match found.kind:
        case "packed":
            return {found.weight: (out, -(-inp // 8)), found.scale: (out, groups)}
        case "gptq":
            return {found.weight: (inp // 8, out), found.scale: (groups, out)}
        case "awq":
            return {found.weight: (inp, out // 8), found.scale: (groups, out)}
        case "modelopt-int4":
            return {found.weight: (out // 2, inp), found.scale: (out, groups)}
        case "modelopt-fp4":
            return {found.weight: (out, inp // 2), found.scale: (out, inp // 16)}
        case _:
            return {found.weight: (out, inp)}


def group_size(quantization: Mapping[str, Any]) -> int | None:
    """Inputs that share a scale, as the config says. None: whole rows."""
    if quantization.get("group_size"):
        return int(quantization["group_size"])
    groups: Mapping[str, Any] = quantization.get("config_groups") or {}
    for group in groups.values():
        weights: Mapping[str, Any] = group.get("weights") or {}
        if weights.get("group_size"):
            return int(weights["group_size"])
    return 128 if "AWQ" in str(quantization.get("quant_algo")) else None


def rows_of(tensors: TensorFiles, found: Stored, rows: Rows) -> Floats | None:
    """Some rows of the ``[out, in]`` matrix that a stored layer stands for. None: not read here (FP4)."""
    match found.kind:
        case "float" | "int":
            scale = tensors.values(found.scale)
            return tensors.values(found.weight, rows) * (scale.reshape(-1, 1)[rows] if scale.size > 1 else scale)
        case "packed":
            return _packed_rows(tensors, found, rows)
        case "awq":
            return _awq_rows(tensors, found, rows)
        case "gptq":
            return _gptq_rows(tensors, found, rows)
        case "modelopt-int4":
            numbers = (tensors.raw(found.weight)[rows // 2] >> (4 * (rows % 2)[:, None])) & 15
            return _grouped((numbers.astype(np.int8) ^ 8) - 8.0, tensors.values(found.scale, rows))
        case _:
            return None


def _packed_rows(tensors: TensorFiles, found: Stored, rows: Rows) -> Floats:
    packed = tensors.raw(found.weight)[rows].astype(np.uint32)
    numbers = ((packed[:, :, None] >> NIBBLES) & 15).reshape(len(rows), -1).astype(np.float32)
    scale = tensors.values(found.scale, rows)
    zeros = found.weight.replace("weight_packed", "weight_zero_point")
    if zeros in tensors:
        columns = tensors.raw(zeros).astype(np.uint32)[rows // 8]
        zero = ((columns >> (4 * (rows % 8)[:, None]).astype(np.uint32)) & 15).astype(np.float32)
        return _grouped(numbers, scale, zero)
    return _grouped(numbers - 8.0, scale)


def _awq_rows(tensors: TensorFiles, found: Stored, rows: Rows) -> Floats:
    shift = np.array([4 * AWQ_ORDER.index(int(row) % 8) for row in rows], dtype=np.uint32)

    def unpacked(name: str) -> Floats:
        return ((tensors.raw(name).astype(np.uint32)[:, rows // 8] >> shift) & 15).T.astype(np.float32)

    zeros = found.weight.replace("qweight", "qzeros")
    scale = tensors.values(found.scale)[:, rows].T
    return _grouped(unpacked(found.weight), scale, unpacked(zeros))


def _gptq_rows(tensors: TensorFiles, found: Stored, rows: Rows) -> Floats:
    packed = tensors.raw(found.weight).astype(np.uint32)[:, rows].T
    numbers = ((packed[:, :, None] >> NIBBLES) & 15).reshape(len(rows), -1).astype(np.float32)
    zeros = tensors.raw(found.weight.replace("qweight", "qzeros")).astype(np.uint32)[:, rows // 8]
    zero = ((zeros >> (4 * (rows % 8)).astype(np.uint32)) & 15).T.astype(np.float32) + 1
    scale = tensors.values(found.scale)[:, rows].T
    order = tensors.raw(found.weight.replace("qweight", "g_idx"))
    return (numbers - zero[:, order]) * scale[:, order]


def _grouped(numbers: NDArray[Any], scale: Floats, zero: Floats | None = None) -> Floats:
    """Numbers ``[rows, in]``, scales and zero points ``[rows, groups]``."""
    width = numbers.shape[1] // scale.shape[1]
    spread = scale.repeat(width, axis=1)
    return ((numbers if zero is None else numbers - zero.repeat(width, axis=1)) * spread).astype(np.float32)
