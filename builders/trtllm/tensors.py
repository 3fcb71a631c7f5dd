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

PLAIN = {"F32": "<f4", "F16": "<f2", "I8": "i1", "U8": "u1", "I32": "<i4"}


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

    def values(self, name: str) -> NDArray[np.float32]:
        """The tensor as float32."""
        tensor = self.tensors[name]
        raw = self._data[self._begin[name] : self._begin[name] + tensor.bytes]
        return widen(raw, tensor.dtype).reshape(tensor.shape)


def widen(raw: bytes, dtype: str) -> NDArray[np.float32]:
    if dtype == "BF16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    if dtype == "F8_E4M3":
        return _e4m3()[np.frombuffer(raw, "u1")]
    return np.frombuffer(raw, PLAIN[dtype]).astype(np.float32)


@cache
def _e4m3() -> NDArray[np.float32]:
    """Every FP8 E4M3 value by its byte: sign, 4 bits of exponent (bias 7), 3 of mantissa; all ones is NaN.

    Source: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), table 1.
    """
    byte = np.arange(256)
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    value = np.where((byte & 127) == 127, np.nan, value)
    return np.where(byte > 127, -value, value).astype(np.float32)
