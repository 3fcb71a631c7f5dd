"""How much memory a quantizer may hold weights in. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

SETTING = "ENGINEWORKS_MEMORY_GB"
"""The user's own word, in GB. Default: what is free, less ``RESERVE``."""
RESERVE = 5 * 10**9
"""Left for activations, Hessians and the tool itself."""
CGROUP = Path("/sys/fs/cgroup")


def memory_for_weights() -> int:
    """Bytes. A container's limit counts where it is under what the machine has free."""
    if given := os.environ.get(SETTING):
        return round(float(given) * 1e9)
    free = _meminfo("MemAvailable")
    limit = _number(CGROUP / "memory.max")
    if limit is not None:
        free = min(free, limit - (_number(CGROUP / "memory.current") or 0))
    return max(0, free - RESERVE)


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
