"""Quantize with ModelOpt into its unified Hugging Face checkpoint (``quant_method: modelopt``).

Params: ``scheme`` (modelopt_common.CONFIGS), ``options`` (``group_size`` and ``n_grid`` of awq), ``keep`` (modules left
as they are), ``kv_cache`` (null or ``fp8``). Inputs: ``checkpoint``, saved by transformers 4 or 5; ``calibration``
for every scheme but fp8. Output: the quantized checkpoint with every other file of the source beside it.

vLLM and TensorRT-LLM read it. transformers loads it without an error and without its scales, so it can't judge it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from checkpoint_files import carry_over, keep_config, read_json, transformers_4_view
from modelopt_common import configuration, load, quantize
from worker_api import Events, Job, Refusal, run_worker


def work(job: Job, events: Events) -> None:
    import torch

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    source, options = job.inputs["checkpoint"], job.params["options"]
    folder = transformers_4_view(source, job.scratch / "checkpoint")
    model = load(folder)
    config = configuration(
        job.params["scheme"], job.params.get("kv_cache"), options.get("group_size"), options.get("n_grid")
    )
    if config is None:
        raise Refusal(f"scheme: {job.params['scheme']!r} quantizes nothing")
    kept = _kept(model, job.params["keep"])
    config["quant_cfg"] += [{"quantizer_name": f"{name}.*", "enable": False} for name in kept]
    quantize(model, config, job, events)
    events.log("writing the checkpoint")
    _export(model, folder, job.output)
    quantization = read_json(job.output / "config.json")["quantization_config"]
    keep_config(source, job.output, quantization)
    (job.output / "generation_config.json").unlink(missing_ok=True)
    carry_over(source, job.output)


def _kept(model: Any, keep: list[str]) -> list[str]:
    """Names of the modules to leave as they are. ModelOpt leaves the output head by itself."""
    names = [name for name, module in model.named_modules() if not list(module.children())]
    found: list[str] = []
    for pattern in keep:
        hits = [
            name for name in names if (re.match(pattern[3:], name) if pattern.startswith("re:") else pattern == name)
        ]
        if not hits:
            raise Refusal(f"keep: {pattern!r} matches no module", "Name a layer, or re: and a regular expression")
        found += hits
    return found


def _export(model: Any, folder: Path, output: Path) -> None:
    import torch
    from modelopt.torch.export import export_hf_checkpoint

    dtype = str(read_json(folder / "config.json").get("torch_dtype") or "bfloat16")
    export_hf_checkpoint(model, dtype=getattr(torch, dtype), export_dir=str(output))


if __name__ == "__main__":
    run_worker(work)
