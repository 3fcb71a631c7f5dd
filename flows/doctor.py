"""Is this machine fit? One line a check."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Literal

import psutil

from artifacts.home import Home
from artifacts.registry import Registry
from artifacts.storage import open_storage
from artifacts.store import Store
from builders.estimates import in_words
from builders.toolchains import REQUIREMENTS, find_toolchain, uv_program
from builders.trtllm.machine import Machine, fitness
from builders.workers.gpu_facts import gpus
from recipes.errors import EngineworksError
from recipes.strict import Strict
from recipes.targets import load_card


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


def examine_target(reference: str) -> Iterator[Check]:
    """Can this machine build and serve for a target? Raises :class:`BadRequest` for one that is not known."""
    card = load_card(reference, "--target")
    for finding in fitness(card, Machine.here()):
        yield Check(name=f"{card.name} {finding.name}", status="ok" if finding.ok else "problem", detail=finding.detail)


def _tried(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name=name, status="ok", detail=look())
    except EngineworksError as error:
        return Check(name=name, status="problem", detail=str(error))


def _gpu() -> Check:
    found = gpus()
    if not found:
        return Check(name="gpu", status="note", detail="none: everything runs on the processor")
    words = [f"{gpu.name} (SM {gpu.sm}, {gpu.memory_mib} MiB, driver {gpu.driver})" for gpu in found]
    return Check(name="gpu", status="ok", detail="; ".join(words))
