"""What both ModelOpt workers do: load, quantize by a scheme's configuration, observe the calibration samples."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from checkpoint_files import samples
from worker_api import Events, Job

CONFIGS = {
    "none": None,
    "fp8": "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "fp8-static": "FP8_DEFAULT_CFG",
    "int8": "INT8_SMOOTHQUANT_CFG",
    "int8-weight-only": "INT8_WEIGHT_ONLY_CFG",
    "awq": "INT4_AWQ_CFG",
    "w4a8-awq": "W4A8_AWQ_BETA_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
}
"""Scheme → ModelOpt's configuration."""
DATA_FREE = ("none", "fp8", "int8-weight-only")


def load(folder: Path) -> Any:
    """In the source's own type where the hardware multiplies matrices in it, else in 32 bits."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    written = AutoConfig.from_pretrained(folder).torch_dtype or torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=_compute_dtype(written))
    return (model.cuda() if torch.cuda.is_available() else model).eval()


def _compute_dtype(written: Any) -> Any:
    import torch

    if torch.cuda.is_available():
        return written
    has = torch.cpu.get_capabilities()
    native = written == torch.bfloat16 and (has.get("avx512_bf16") or has.get("amx_bf16"))
    return written if native else torch.float32


def configuration(
    scheme: str, kv_cache: str | None, group_size: int | None, steps: int | None
) -> dict[str, Any] | None:
    """ModelOpt's own configuration of a scheme, with our options. ``steps``: scaling strengths that AWQ tries."""
    import modelopt.torch.quantization as mtq

    name = CONFIGS[scheme]
    config = copy.deepcopy(getattr(mtq, name)) if name else None
    if kv_cache:
        cache = copy.deepcopy(mtq.FP8_KV_CFG)
        if config is None:
            config = {"quant_cfg": [{"quantizer_name": "*", "enable": False}], "algorithm": "max"}
        config["quant_cfg"] = [*config["quant_cfg"], *cache["quant_cfg"]]
    if config and group_size and scheme == "awq":
        for rule in config["quant_cfg"]:
            if rule["quantizer_name"] == "*weight_quantizer":
                rule["cfg"]["block_sizes"][-1] = group_size
    if config and steps and scheme == "awq":
        config["algorithm"]["alpha_step"] = 1 / steps
    return config


def quantize(model: Any, config: dict[str, Any], job: Job, events: Events) -> None:
    import modelopt.torch.quantization as mtq
    import torch

    rows = samples(job.inputs["calibration"]) if "calibration" in job.inputs else []

    def observe(observed: Any) -> None:
        for place, ids in enumerate(rows):
            with torch.no_grad():
                observed(torch.tensor([ids], device=observed.device))
            events.progress(place + 1, len(rows), "samples")

    mtq.quantize(model, config, observe if rows else None)
