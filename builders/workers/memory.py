"""How much memory a stage may take here. Standard library only: workers and the plan both ask."""

from __future__ import annotations

import os
from pathlib import Path

SETTING = "ENGINEWORKS_MEMORY_GB"
"""The user's own limit for one stage, in GB. Default: what the machine, or its container, has."""
TOOL = 10**9
"""Bytes that a quantizer takes before it has any weights, activations of a small model included."""
SHARE = 0.1
"""Of all memory, left for activations and Hessians."""
CGROUP = Path("/sys/fs/cgroup")


def memory_limit() -> int:
    """Most bytes that a stage may take: the setting, the container's limit, or all there is."""
    if given := os.environ.get(SETTING):
        return round(float(given) * 1e9)
    there = _meminfo("MemTotal")
    limit = _number(CGROUP / "memory.max")
    return there if limit is None else min(there, limit)


def memory_for_weights() -> int:
    """Bytes of weights that a tool which can offload should hold, by what is free at this moment."""
    limit = memory_limit()
    if SETTING in os.environ:
        free = limit
    else:
        used = _number(CGROUP / "memory.current") if _number(CGROUP / "memory.max") is not None else None
        free = _meminfo("MemAvailable") if used is None else min(_meminfo("MemAvailable"), limit - used)
    return max(0, free - TOOL - round(SHARE * limit))


def _meminfo(name: str) -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None  # not under a control group, or "max"
