"""What this machine's processor can do. Standard library only."""

from __future__ import annotations

from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Linux's words for instructions that multiply matrices in bfloat16 (x86, ARM)."""


@cache
def computes_in_bfloat16() -> bool:
    """Whether bfloat16 is faster than 32 bits here. Without such instructions it is many times slower."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return not BFLOAT16.isdisjoint(flags.split())
