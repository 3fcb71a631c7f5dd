"""What NVIDIA GPUs this machine has. Standard library only: workers of any environment import it.

Source: ``nvidia-smi --query-gpu`` (compute_cap is there from driver 510 on).
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

QUERY = ("name", "compute_cap", "memory.total", "driver_version")


@dataclass(frozen=True)
class Gpu:
    name: str
    sm: int
    """Compute capability times ten."""
    memory_mib: int
    driver: str


def gpus() -> list[Gpu]:
    """Every GPU that nvidia-smi lists; none when it is not there or fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    found = []
    for line in done.stdout.splitlines() if done.returncode == 0 else []:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(QUERY):
            name, capability, memory, driver = cells
            major, _, minor = capability.partition(".")
            if major.isdigit():
                found.append(Gpu(name, int(major) * 10 + int(minor or 0), int(float(memory)), driver))
    return found
