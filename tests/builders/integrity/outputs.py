"""Quantized checkpoints written by hand, by rounding to nearest: what the check must find nothing wrong with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builders.integrity.formats import AWQ_ORDER
from tests.tiny_models import read_safetensors, write_tensors

Tensors = dict[str, NDArray[Any]]
GROUP = 64


def is_linear(name: str) -> bool:
    return name.endswith("_proj.weight")


def rounded(weight: NDArray[np.float32]) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Numbers 0 to 15 around 8, ``[out, in]``, and scales ``[out, in / GROUP]``."""
    groups = weight.reshape(weight.shape[0], -1, GROUP)
    scale = np.abs(groups).max(2) / 7
    numbers = np.clip(np.round(groups / scale[:, :, None]), -8, 7) + 8
    return numbers.reshape(weight.shape).astype(np.uint32), scale.astype(np.float32)


def pack(numbers: NDArray[np.uint32], axis: int, order: tuple[int, ...] = tuple(range(8))) -> NDArray[np.int32]:
    """Eight numbers of ``axis`` in an integer; ``order[place]`` is the one that stands at ``place``."""
    moved = np.moveaxis(numbers, axis, -1)
    eights = moved.reshape(*moved.shape[:-1], -1, 8)[..., list(order)]
    packed = (eights << (np.arange(8, dtype=np.uint32) * 4)).sum(-1, dtype=np.uint32)
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32)


def packed(layer: str, weight: NDArray[np.float32]) -> Tensors:
    numbers, scale = rounded(weight)
    return {
        f"{layer}.weight_packed": pack(numbers, 1),
        f"{layer}.weight_scale": scale,
        f"{layer}.weight_shape": np.array(weight.shape, np.int64),
    }


def awq(layer: str, weight: NDArray[np.float32]) -> Tensors:
    numbers, scale = rounded(weight)
    zeros = np.full(scale.T.shape, 8, np.uint32)
    return {
        f"{layer}.qweight": pack(numbers.T, 1, AWQ_ORDER),
        f"{layer}.qzeros": pack(zeros, 1, AWQ_ORDER),
        f"{layer}.scales": np.ascontiguousarray(scale.T),
    }


def gptq(layer: str, weight: NDArray[np.float32]) -> Tensors:
    numbers, scale = rounded(weight)
    return {
        f"{layer}.qweight": pack(np.ascontiguousarray(numbers.T), 0),
        f"{layer}.qzeros": pack(np.full(scale.T.shape, 7, np.uint32), 1),  # stored less one
        f"{layer}.scales": np.ascontiguousarray(scale.T),
        f"{layer}.g_idx": (np.arange(weight.shape[1]) // GROUP).astype(np.int32),
    }


def modelopt(layer: str, weight: NDArray[np.float32]) -> Tensors:
    numbers, scale = rounded(weight)
    signed = (numbers ^ 8).astype(np.uint8)
    return {f"{layer}.weight": signed[0::2] | (signed[1::2] << 4), f"{layer}.weight_scale": scale}


def int8(layer: str, weight: NDArray[np.float32]) -> Tensors:
    scale = np.abs(weight).max(1, keepdims=True) / 127
    return {f"{layer}.weight": np.round(weight / scale).astype(np.int8), f"{layer}.weight_scale": scale}


FORMATS = {"packed": packed, "awq": awq, "gptq": gptq, "modelopt": modelopt, "int8": int8}
METHODS = {"packed": "compressed-tensors", "int8": "compressed-tensors"}


def write_output(source: Path, folder: Path, form: str) -> Path:
    """``source`` with every linear layer in one of the formats."""
    shutil.copytree(source, folder)
    tensors: Tensors = {}
    for name, values in read_safetensors(source / "model.safetensors").items():
        tensors |= FORMATS[form](name.removesuffix(".weight"), values) if is_linear(name) else {name: values}
    write_tensors(folder / "model.safetensors", tensors)
    quantization = {"quant_method": METHODS.get(form, form), "ignore": ["lm_head"]}
    edit(folder, lambda config: config.update(quantization_config=quantization))
    return folder


def edit(folder: Path, change: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def damage(folder: Path, change: Any) -> None:
    tensors = read_safetensors(folder / "model.safetensors", as_they_are=True)
    change(tensors)
    write_tensors(folder / "model.safetensors", tensors)
