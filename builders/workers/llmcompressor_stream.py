"""Quantize shard by shard with llm-compressor's model-free path: no model is built, memory is that of two shards.

For schemes that need no data: fp8, int4, and int8 rounded to nearest without smoothing. Params: ``scheme``,
``options`` (``group_size``, ``symmetric`` of int4), ``keep``. Inputs: ``checkpoint`` (safetensors). Output: the
quantized checkpoint with every other file of the source beside it; the same tensors as the whole-model path writes.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

from checkpoint_files import carry_over
from worker_api import Events, Job, Refusal, run_worker

NOT_LINEAR = (r"re:.*(embed_tokens|wte|wpe|word_embeddings|embed_positions|embed_in)$",)
"""Tables that look like linear layers in a file, where nothing says what a matrix is for."""
ROUTERS = (r"re:.*\.(gate|router|shared_expert_gate)$",)
"""Of mixtures of experts: servers keep them in 16 bits."""


def work(job: Job, events: Events) -> None:
    import torch
    from llmcompressor.entrypoints.model_free import model_free_ptq
    from loguru import logger

    logger.disable("llmcompressor")
    torch.set_num_threads(job.threads)
    source = job.inputs["checkpoint"]
    shards = sorted(source.glob("*.safetensors"))
    if not shards:
        raise Refusal("source: no safetensors, which the shard-by-shard path reads", "Convert the checkpoint first")
    _check_keep(shards, [pattern for pattern in job.params["keep"] if pattern != "lm_head"])
    stop = threading.Event()
    threading.Thread(target=_report, args=(job.output, len(shards), events, stop), daemon=True).start()
    try:
        model_free_ptq(
            str(source),
            str(job.output),
            config=_config(job.params["scheme"], job.params["options"], list(job.params["keep"])),
            max_workers=1,  # each holds a shard and what becomes of it
            device="cuda:0" if torch.cuda.is_available() else "cpu",
        )
    finally:
        stop.set()
    events.progress(len(shards), len(shards), "shards")
    carry_over(source, job.output)


def _check_keep(shards: list[Path], keep: list[str]) -> None:
    """Every entry must name a layer: one that matches nothing keeps nothing, in silence."""
    from safetensors import safe_open

    names: set[str] = set()
    for shard in shards:
        with safe_open(shard, "pt") as file:
            names |= {name.removesuffix(".weight") for name in file.keys()}  # noqa: SIM118 - it is no mapping
    for pattern in keep:
        if not any(re.match(pattern[3:], name) if pattern.startswith("re:") else pattern == name for name in names):
            raise Refusal(f"keep: {pattern!r} matches no module", "Name a layer, or re: and a regular expression")


def _config(scheme: str, options: dict[str, Any], keep: list[str]) -> Any:
    from compressed_tensors.quantization import (
        QuantizationArgs,
        QuantizationConfig,
        QuantizationScheme,
        preset_name_to_scheme,
    )

    match scheme:
        case "fp8":
            group = preset_name_to_scheme("FP8_DYNAMIC", ["Linear"])
        case "int8":
            group = preset_name_to_scheme("W8A8", ["Linear"])
        case "int4":
            size, symmetric = options["group_size"], options["symmetric"]
            weights = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=size, symmetric=symmetric)
            group = QuantizationScheme(targets=["Linear"], weights=weights)
        case _:
            raise Refusal(f"scheme: {scheme!r} needs the whole model")
    return QuantizationConfig(config_groups={"group_0": group}, ignore=[*keep, *NOT_LINEAR, *ROUTERS])


def _report(output: Path, total: int, events: Events, stop: threading.Event) -> None:
    """A shard counts when its file is there."""
    seen = -1
    while not stop.wait(0.5):
        done = len(list(output.glob("*.safetensors")))
        if done != seen:
            seen = done
            events.progress(max(0, done - 1), total, "shards")


if __name__ == "__main__":
    run_worker(work)
