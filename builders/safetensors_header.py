"""Read what a safetensors file says it holds, without reading the tensors.

Format: 8 bytes little-endian length N, N bytes of JSON {name: {dtype, shape, data_offsets: [begin, end]}}, then data.
Source: the format section of the safetensors README.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DTYPE_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "F4": 4,
}  # fmt: skip
LONGEST_HEADER = 100 << 20
"""Bytes: the limit of the reference implementation."""


class BrokenFile(ValueError):
    """The file is not a whole safetensors file. The message says what is wrong with it."""


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    file: str
    """Name of the shard."""
    bytes: int


def read_header(path: Path) -> dict[str, Tensor]:
    """Tensors of one file by name. Raises :class:`BrokenFile` when header, offsets and size do not agree."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            raise BrokenFile(f"its header claims {length} bytes, the file has {size}: cut off, or not safetensors")
        try:
            header: dict[str, Any] = json.loads(stream.read(length))
        except ValueError:
            raise BrokenFile("its header is not JSON") from None
    header.pop("__metadata__", None)
    try:
        tensors = {name: _tensor(name, entry, path.name) for name, entry in header.items()}
        ends = sorted((entry["data_offsets"][0], entry["data_offsets"][1]) for entry in header.values())
    except (KeyError, TypeError, IndexError):
        raise BrokenFile("its header lacks dtype, shape or data_offsets of a tensor") from None
    expected = 0
    for begin, end in ends:
        if begin != expected:
            raise BrokenFile(f"its tensors leave a hole or overlap at byte {expected}")
        expected = end
    if expected != size - 8 - length:
        raise BrokenFile(f"its tensors need {expected} bytes, {size - 8 - length} are there: cut off or padded")
    return tensors


def _tensor(name: str, entry: dict[str, Any], file: str) -> Tensor:
    begin, end = entry["data_offsets"]
    shape = tuple(int(n) for n in entry["shape"])
    bits = DTYPE_BITS.get(entry["dtype"])
    if bits is None:
        raise BrokenFile(f"tensor {name} has an unknown dtype {entry['dtype']!r}")
    if (end - begin) * 8 != math.prod(shape) * bits:
        raise BrokenFile(f"tensor {name} of {shape} {entry['dtype']} can't fill {end - begin} bytes")
    return Tensor(entry["dtype"], shape, file, end - begin)
