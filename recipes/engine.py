"""How TensorRT-LLM engines are made: ``engine:`` of a recipe. Only engine targets use it."""

from __future__ import annotations

from typing import Literal

from recipes.strict import Strict


class EngineBuild(Strict):
    """From the checkpoint to ``trtllm-build``."""

    route: Literal["auto", "modelopt", "converter"] = "auto"
    """Who makes the TensorRT-LLM checkpoint: ModelOpt (runs anywhere), or the release's own convert_checkpoint.py and
    quantize.py (run where TensorRT-LLM is installed). ``auto``: ModelOpt where it can."""
    dtype: Literal["auto", "float16", "bfloat16"] = "auto"
    """Type of what is not quantized. ``auto``: the checkpoint's own."""
    options: dict[str, bool | int | float | str | tuple[str, ...]] = {}
    """Options of ``trtllm-build`` by their own names, as the target's release has them (``max_batch_size``,
    ``max_seq_len``, ``gemm_plugin``, …). What is not given gets a default from the card and the model."""
    calib_dataset: str | None = None
    """Hub name or directory that the release's own converter calibrates on. Default: the converter's own."""
