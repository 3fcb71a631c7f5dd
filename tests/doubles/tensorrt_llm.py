"""A machine with TensorRT-LLM and a GPU, as far as programs can tell: doubles in a folder that goes first on PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent


def install(
    folder: Path, *, version: str = "1.2.1", tensorrt: str = "10.14.1.48", gpu: str = "NVIDIA H100 80GB HBM3, 9.0",
    gpus: int = 1, serve_python: Path | None = None,
) -> dict[str, str]:  # fmt: skip
    """Returns the environment to run under. ``serve_python``: an interpreter with transformers, for trtllm-serve."""
    folder.mkdir(parents=True)
    site = folder / "site"
    for name, number in (("tensorrt_llm", version), ("tensorrt", tensorrt)):
        info = site / f"{name}-{number}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    python = f'export PYTHONPATH="{site}:$PYTHONPATH"\nexec {sys.executable} "$@"\n'
    _script(folder / "python3", python)
    _script(folder / "trtllm-build", f'exec {folder}/python3 {HERE / "trtllm_build.py"} "$@"\n')
    rows = "\n".join(f"echo '{gpu}, 81559, 580.65.06'" for _ in range(gpus))
    _script(folder / "nvidia-smi", rows + "\n")
    if serve_python:
        _script(folder / "trtllm-serve", f'unset PYTHONPATH\nexec {serve_python} {HERE / "trtllm_serve.py"} "$@"\n')
    return {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "ENGINEWORKS_TOOLCHAIN_TENSORRT_LLM": f"system:{folder / 'python3'}",
    }


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)
