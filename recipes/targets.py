"""GPU target cards: what a variant must run on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from recipes.errors import BadRequest, Problem, nearest
from recipes.loading import read_document, validate
from recipes.strict import Strict

CARDS = Path(__file__).parent / "targets"

Runtime = Literal["vllm", "engine", "checkpoint"]
REFERENCE = re.compile(r"(?P<card>.+?)(?:x(?P<ranks>[1-9]\d?))?(?::(?P<runtime>[a-z]+))?")


class TargetCard(Strict):
    """One kind of machine and the runtime that serves on it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*(:[a-z]+)?$")]
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
    runtimes: tuple[Runtime, ...] = ()
    """What else can serve there: a recipe chooses with ``CARD:RUNTIME``."""
    tensorrt_llm: Annotated[str, Field(pattern=r"^\d+\.\d+")] | None = None
    """TensorRT-LLM release that engines are built with and served by."""
    image: Annotated[str, Field(pattern=r"^\S+@sha256:[0-9a-f]{64}$")] | None = None
    """Container image that has that release, by digest. Null: not pinned, the worker's own installation is used."""
    work_pool: str = "cpu"
    """Prefect work pool whose workers are such machines."""

    @property
    def ranks(self) -> int:
        """Processes that share one model."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def slug(self) -> str:
        """Its name in paths: ``h100-engine``."""
        return self.name.replace(":", "-")


def load_card(reference: str, where: str = "targets") -> TargetCard:
    """``CARD[xN][:RUNTIME]``: a shipped card by name, or a card of your own by its path; ``xN`` for tensor
    parallelism over N such GPUs; the runtime when it is not the card's first. Raises :class:`BadRequest`."""
    name, ranks, runtime = _split(reference)
    path = Path(name) if name.endswith((".yaml", ".yml")) else CARDS / f"{name}.yaml"
    if not path.is_file():
        shipped = [card.stem for card in CARDS.glob("*.yaml")]
        raise BadRequest(Problem(where, repr(name), "a shipped target card or a path to one", nearest(name, shipped)))
    card = validate(TargetCard, read_document(path))
    chosen = runtime or card.runtime
    known = dict.fromkeys((card.runtime, *card.runtimes))
    if chosen not in known:
        raise BadRequest(Problem(where, f"runtime {chosen!r} on {card.name}", f"one of {', '.join(known)}"))
    if ranks is not None:
        card = card.model_copy(
            update={"count": ranks, "tensor_parallel": ranks, "pipeline_parallel": 1, "name": f"{card.name}x{ranks}"}
        )
    if card.ranks != card.count:
        raise BadRequest(
            Problem(
                f"{where} {card.name}",
                f"count {card.count}, tensor_parallel {card.tensor_parallel} x pipeline_parallel "
                f"{card.pipeline_parallel}",
                f"count {card.ranks}: one GPU a rank",
            )
        )
    if chosen == "engine" and card.tensorrt_llm is None:
        raise BadRequest(Problem(f"{where} {card.name}", "no tensorrt_llm", "the release to build with, such as 1.2.1"))
    name = card.name if chosen == card.runtime else f"{card.name}:{chosen}"
    return card.model_copy(update={"runtime": chosen, "name": name})


def _split(reference: str) -> tuple[str, int | None, str | None]:
    """Card, ranks, runtime. A card whose own name looks like ``NAMExN`` is taken for itself."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        return reference, None, None
    card, ranks, runtime = match["card"], match["ranks"], match["runtime"]
    if ranks and (CARDS / f"{card}x{ranks}.yaml").is_file():
        return f"{card}x{ranks}", None, runtime
    return card, int(ranks) if ranks else None, runtime
