"""This machine against an engine or a target card: an engine runs on nothing but what it was built for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from artifacts.release import EngineBuilt
from builders.trtllm.installation import Installation, find_installation
from builders.workers.gpu_facts import Gpu, gpus
from recipes.errors import Problem
from recipes.targets import TargetCard


@dataclass(frozen=True)
class Machine:
    gpus: list[Gpu]
    installation: Installation | None

    @classmethod
    def here(cls) -> Machine:
        return cls(gpus(), find_installation())


@dataclass(frozen=True)
class Finding:
    """One thing that a target needs."""

    name: str
    ok: bool
    detail: str


def problems_with_engine(built: EngineBuilt, machine: Machine) -> Iterator[Problem]:
    """Why this machine can't load an engine, as far as it is known: a machine without GPU only stores it."""
    if machine.gpus and machine.gpus[0].sm != built.sm:
        gpu = machine.gpus[0]
        yield Problem(
            "engine",
            f"built on {built.gpu} (SM {built.sm}); this machine has {gpu.name} (SM {gpu.sm})",
            f"a GPU of SM {built.sm}",
            "Build for this target, or --force to fetch it all the same",
        )
    if machine.gpus and len(machine.gpus) < built.ranks:
        yield Problem("engine", f"split over {built.ranks} GPUs; this machine has {len(machine.gpus)}", "as many")
    here = machine.installation
    if here is None:
        return
    if here.tensorrt_llm and here.tensorrt_llm.split("+")[0] != built.tensorrt_llm.split("+")[0]:
        yield Problem(
            "engine",
            f"built by TensorRT-LLM {built.tensorrt_llm}; this machine has {here.tensorrt_llm}",
            f"TensorRT-LLM {built.tensorrt_llm}",
            "Its container will do, or --force to fetch it all the same",
        )
    elif here.tensorrt and built.tensorrt not in ("unknown", here.tensorrt):
        yield Problem(
            "engine",
            f"serialized by TensorRT {built.tensorrt}; this machine has {here.tensorrt}",
            f"TensorRT {built.tensorrt}: another can't read it",
            "Or --force to fetch it all the same",
        )


def fitness(card: TargetCard, machine: Machine) -> Iterator[Finding]:
    """What a target needs of the machine that builds for it and serves it, one finding a thing."""
    if card.sm is None:
        yield Finding("gpu", ok=True, detail="none needed")
        return
    if not machine.gpus:
        yield Finding(
            "gpu", ok=False, detail=f"nvidia-smi shows none; wanted {card.count} of SM {card.sm} ({card.gpu})"
        )
    else:
        gpu = machine.gpus[0]
        fits = gpu.sm == card.sm if card.runtime == "engine" else gpu.sm >= card.sm
        detail = f"{gpu.name}, SM {gpu.sm}"
        yield Finding("gpu", ok=fits, detail=detail if fits else f"{detail}; wanted SM {card.sm} ({card.gpu})")
        enough = len(machine.gpus) >= card.count
        yield Finding("gpu count", ok=enough, detail=f"{len(machine.gpus)}; wanted {card.count}")
        memory = gpu.memory_mib / 1024
        roomy = card.memory_gib is None or memory >= card.memory_gib * 0.9  # cards are named by more than they hold
        yield Finding("gpu memory", ok=roomy, detail=f"{memory:.0f} GiB; the card says {card.memory_gib:g}")
        yield Finding("driver", ok=True, detail=gpu.driver)
    if card.runtime == "vllm":
        found = shutil.which("vllm")
        yield Finding("vllm", ok=found is not None, detail=found or "not on PATH: pip install vllm")
        return
    yield from _tensorrt_llm(card, machine.installation)


def _tensorrt_llm(card: TargetCard, here: Installation | None) -> Iterator[Finding]:
    if here is None or here.tensorrt_llm is None:
        yield Finding("tensorrt-llm", ok=False, detail=f"not found; wanted {card.tensorrt_llm}, in NVIDIA's container")
        return
    fits = card.runtime == "checkpoint" or here.tensorrt_llm.split("+")[0] == card.tensorrt_llm
    yield Finding(
        "tensorrt-llm",
        ok=fits,
        detail=here.tensorrt_llm if fits else f"{here.tensorrt_llm}; wanted {card.tensorrt_llm}",
    )
    yield Finding("tensorrt", ok=here.tensorrt is not None, detail=here.tensorrt or "not found")
    for name in ("trtllm-build", "trtllm-serve") if card.runtime == "engine" else ("trtllm-serve",):
        program = here.program(name)
        yield Finding(name, ok=program is not None, detail=str(program or "not found"))
    if card.ranks > 1:
        found = shutil.which("mpirun")
        yield Finding("mpirun", ok=found is not None, detail=found or "not found; Triton starts ranks with it")
