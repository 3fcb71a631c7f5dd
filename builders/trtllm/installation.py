"""Where TensorRT-LLM is on this machine. It comes in NVIDIA's container or from NVIDIA's index; we never install it.

``ENGINEWORKS_TOOLCHAIN_TENSORRT_LLM=system:/path/to/python`` names its interpreter; else the one that the
``trtllm-build`` on PATH starts with. The scripts beside the interpreter are used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VARIABLE = "ENGINEWORKS_TOOLCHAIN_TENSORRT_LLM"
ASK = """
import importlib.metadata as metadata, json
def version(*names):
    for name in names:
        try: return metadata.version(name)
        except metadata.PackageNotFoundError: pass
tensorrt = version("tensorrt", "tensorrt-cu13", "tensorrt-cu12")
print(json.dumps({"tensorrt_llm": version("tensorrt-llm", "tensorrt_llm"), "tensorrt": tensorrt}))
"""


@dataclass(frozen=True)
class Installation:
    python: Path
    tensorrt_llm: str | None
    """Version. None: this interpreter has none."""
    tensorrt: str | None

    def program(self, name: str) -> Path | None:
        """A command of it (``trtllm-build``, ``trtllm-serve``)."""
        beside = self.python.with_name(name)
        found = str(beside) if beside.is_file() else shutil.which(name)
        return Path(found) if found else None


def find_python() -> Path | None:
    """The interpreter that has TensorRT-LLM, as far as names tell."""
    setting = os.environ.get(VARIABLE, "")
    if setting.startswith("system:"):
        found = shutil.which(setting.removeprefix("system:"))
        return Path(found) if found else None
    script = shutil.which("trtllm-build")
    if script is None:
        return None
    with Path(script).open("rb") as stream:
        first = stream.readline(1000).decode(errors="replace")
    match = re.match(r"#!\s*(\S+)(?:\s+(\S+))?", first)
    if match is None:
        return None
    python = match[2] if match[1].endswith("/env") and match[2] else match[1]
    found = shutil.which(python)
    return Path(found) if found else None


def find_installation() -> Installation | None:
    """None: not on this machine."""
    python = find_python()
    return _asked(python) if python else None


@cache
def _asked(python: Path) -> Installation | None:
    done = subprocess.run(
        [str(python), "-c", ASK], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd="/"
    )
    try:
        versions = json.loads(done.stdout)
    except ValueError:
        return None
    return Installation(python, versions["tensorrt_llm"], versions["tensorrt"])


def find_server() -> Path | None:
    """``trtllm-serve`` on this machine."""
    python = find_python()
    return Installation(python, None, None).program("trtllm-serve") if python else None
