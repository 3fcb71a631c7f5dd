"""GPU target cards: what a variant must run on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from recipes.errors import BadRequest, Problem, nearest
from recipes.loading import read_document, validate
from recipes.models import Slug
from recipes.strict import Strict

CARDS = Path(__file__).parent / "targets"

Runtime = Literal["vllm", "engine", "checkpoint"]


class TargetCard(Strict):
    """One kind of machine and the runtime that serves on it."""

    name: Slug
    gpu: str
    """Product name, as ``nvidia-smi`` shows it, or the processor family for ``cpu``."""
    sm: Annotated[int, Field(ge=70)] | None
    """Compute capability times ten (90 for Hopper). Null: no GPU."""
    memory_gib: Annotated[float, Field(gt=0)] | None
    """Memory of one GPU. Null: the machine's own."""
    count: Annotated[int, Field(ge=1)] = 1
    """GPUs in one replica."""
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    pipeline_parallel: Annotated[int, Field(ge=1)] = 1
    runtime: Runtime = "vllm"
    """What serves: vLLM, a TensorRT-LLM engine, or TensorRT-LLM's PyTorch backend on a checkpoint."""
    work_pool: str = "cpu"
    """Prefect work pool whose workers are such machines."""


def load_card(name: str, where: str = "targets") -> TargetCard:
    """A shipped card by name, or a card of your own by its path. Raises :class:`BadRequest`."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else CARDS / f"{name}.yaml"
    if not path.is_file():
        shipped = [card.stem for card in CARDS.glob("*.yaml")]
        raise BadRequest(Problem(where, repr(name), "a shipped target card or a path to one", nearest(name, shipped)))
    return validate(TargetCard, read_document(path))
