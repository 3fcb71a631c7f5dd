"""Is this machine fit? One line a check."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Literal

import psutil

from artifacts.home import Home
from artifacts.registry import Registry
from artifacts.storage import open_storage
from artifacts.store import Store
from builders.estimates import in_words
from builders.toolchains import REQUIREMENTS, find_toolchain, uv_program
from recipes.errors import EngineworksError
from recipes.strict import Strict


class Check(Strict):
    name: str
    status: Literal["ok", "note", "problem"]
    detail: str


def examine(home: Home, registry: str | None) -> Iterator[Check]:
    """Store, registry, tools, memory, disk and GPU, as they are now. Changes nothing."""
    yield _tried("store", lambda: str(Store(home.store).root))
    url = registry or home.registry_url

    def registry_state() -> str:
        storage = open_storage(url)
        storage.check()
        return f"{url}, {len(Registry(storage).releases())} releases"

    yield _tried("registry", registry_state)
    found = shutil.which(uv_program())
    yield Check(name="uv", status="ok" if found else "problem", detail=found or "not found: pip install uv")
    for path in sorted(REQUIREMENTS.glob("*.txt")):
        toolchain = find_toolchain(path.stem, home.root)
        detail = str(toolchain.python) if toolchain.ready else "not made yet; the first build that needs it makes it"
        yield Check(
            name=f"toolchain {path.stem}",
            status="ok" if toolchain.ready else "note",
            detail=f"{toolchain.mode}: {detail}",
        )
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(home.store)
    yield Check(name="memory", status="ok", detail=f"{in_words(memory.available)} free of {in_words(memory.total)}")
    low = disk.free < 5e9
    yield Check(name="disk", status="problem" if low else "ok", detail=f"{in_words(disk.free)} free under {home.store}")
    yield _gpu()


def _tried(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name=name, status="ok", detail=look())
    except EngineworksError as error:
        return Check(name=name, status="problem", detail=str(error))


def _gpu() -> Check:
    if shutil.which("nvidia-smi") is None:
        return Check(name="gpu", status="note", detail="none: everything runs on the processor")
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,memory.total,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return Check(
        name="gpu",
        status="ok" if done.returncode == 0 else "problem",
        detail="; ".join(done.stdout.split("\n")).strip("; "),
    )
