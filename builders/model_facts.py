"""What a plan must know of a model before any of it is loaded: its linear layers' shapes and its size."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builders.checkpoint import Checkpoint
from builders.safetensors_header import DTYPE_BITS
from recipes.strict import Strict

EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|wpe|word_embeddings|embed_positions|embed_in)\.weight$")
ROW_PARALLEL = re.compile(r"(^|\.)(o_proj|down_proj|out_proj|c_proj|dense_4h_to_h|w2|attn_output|ffn_down)(\.|$)")
"""Layers that tensor parallelism splits along their input: each rank sees ``in_features / tp``."""


class Linear(Strict):
    """One weight matrix, ``[out_features, in_features]``."""

    name: str
    in_features: int
    out_features: int

    @property
    def row_parallel(self) -> bool:
        return ROW_PARALLEL.search(self.name) is not None


class ModelFacts(Strict):
    """Shapes and sizes, from headers alone."""

    architecture: str
    parameters: int
    weight_bytes: int
    linears: tuple[Linear, ...]
    """Every two-dimensional weight but embeddings and the output head."""
    quantized: str | None = None
    """``quant_method`` of a checkpoint that is quantized already."""

    @property
    def linear_parameters(self) -> int:
        return sum(linear.in_features * linear.out_features for linear in self.linears)


def facts_of_tensors(config: Mapping[str, Any], tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> ModelFacts:
    """From a config and each tensor's (dtype, shape) as safetensors headers give them."""
    linears = [
        Linear(name=name.removesuffix(".weight"), in_features=shape[1], out_features=shape[0])
        for name, (_, shape) in sorted(tensors.items())
        if len(shape) == 2
        and name.endswith(".weight")
        and not EMBEDDING.search(name)
        and not name.startswith("lm_head")
    ]
    architectures = config.get("architectures") or ["unknown"]
    quantization: dict[str, Any] = config.get("quantization_config") or {}
    return ModelFacts(
        architecture=str(architectures[0]),
        parameters=sum(math.prod(shape) for _, shape in tensors.values()),
        weight_bytes=sum(math.prod(shape) * DTYPE_BITS.get(dtype, 16) // 8 for dtype, shape in tensors.values()),
        linears=tuple(linears),
        quantized=quantization.get("quant_method"),
    )


def facts_of_checkpoint(checkpoint: Checkpoint) -> ModelFacts:
    tensors = {name: (tensor.dtype, tensor.shape) for name, tensor in checkpoint.tensors.items()}
    return facts_of_tensors(checkpoint.config, tensors)


def facts_of_gguf(file: Path, bytes_per_weight: int) -> ModelFacts:
    """From a GGUF file's own header. Its dimensions run the other way round: the input size comes first."""
    from gguf import GGUFReader  # pyright: ignore[reportMissingTypeStubs]

    reader = GGUFReader(file)
    field = reader.fields.get("general.architecture")
    shapes = {str(tensor.name): tuple(int(n) for n in tensor.shape) for tensor in reader.tensors}
    linears = [
        Linear(name=name.removesuffix(".weight"), in_features=shape[0], out_features=shape[1])
        for name, shape in sorted(shapes.items())
        if name.startswith("blk.") and len(shape) == 2 and name.endswith(".weight")
    ]
    parameters = sum(math.prod(shape) for shape in shapes.values())
    return ModelFacts(
        architecture=str(field.contents()) if field is not None else "unknown",
        parameters=parameters,
        weight_bytes=parameters * bytes_per_weight,
        linears=tuple(linears),
    )
