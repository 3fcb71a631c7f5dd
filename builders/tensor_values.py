"""Values of safetensors tensors, without torch: mapped into memory, widened to float32."""

from __future__ import annotations

import json
import mmap
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builders.safetensors_header import Tensor, read_header

Floats = NDArray[np.float32]
RAW = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "U8": "u1", "BOOL": "u1",
}  # fmt: skip
"""How numpy reads each type's bytes; what it has no type for, as integers of that width."""


class TensorFile:
    """One safetensors file. Raises :class:`builders.safetensors_header.BrokenFile`."""

    def __init__(self, path: Path) -> None:
        self.tensors: dict[str, Tensor] = read_header(path)
        with path.open("rb") as stream:
            self._data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        length = int.from_bytes(self._data[:8], "little")
        header: dict[str, Any] = json.loads(self._data[8 : 8 + length])
        self._begin = {
            name: 8 + length + entry["data_offsets"][0] for name, entry in header.items() if "dtype" in entry
        }

    def raw(self, name: str) -> NDArray[Any]:
        """The tensor where it lies in the file, as :data:`RAW` says: nothing is read until it is used."""
        tensor = self.tensors[name]
        kind = np.dtype(RAW[tensor.dtype])
        count = tensor.bytes // kind.itemsize
        return np.frombuffer(self._data, kind, count, self._begin[name]).reshape(tensor.shape)

    def values(self, name: str, rows: NDArray[np.intp] | None = None) -> Floats:
        """The tensor as float32, or some of its rows."""
        raw = self.raw(name)
        return widen(raw if rows is None else raw[rows], self.tensors[name].dtype)


class TensorFiles:
    """Every safetensors file of a checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        self._file_of: dict[str, TensorFile] = {}
        for path in sorted(folder.glob("*.safetensors")):
            file = TensorFile(path)
            self._file_of |= dict.fromkeys(file.tensors, file)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def __iter__(self) -> Any:
        return iter(self._file_of)

    def info(self, name: str) -> Tensor:
        return self._file_of[name].tensors[name]

    def raw(self, name: str) -> NDArray[Any]:
        return self._file_of[name].raw(name)

    def values(self, name: str, rows: NDArray[np.intp] | None = None) -> Floats:
        return self._file_of[name].values(name, rows)


def widen(raw: NDArray[Any], dtype: str) -> Floats:
    """Stored numbers as float32. ``raw`` as :data:`RAW` reads them."""
    if dtype == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if dtype == "F8_E4M3":
        return _e4m3()[raw]
    return raw.astype(np.float32)


@cache
def _e4m3() -> Floats:
    """Every FP8 E4M3 value by its byte: sign, 4 bits of exponent (bias 7), 3 of mantissa; all ones is NaN.

    Source: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), table 1.
    """
    byte = np.arange(256)
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    value = np.where((byte & 127) == 127, np.nan, value)
    return np.where(byte > 127, -value, value).astype(np.float32)
