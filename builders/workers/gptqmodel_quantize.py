"""Quantize with GPTQModel into Hugging Face's GPTQ format (``quant_method: gptq``).

Params: ``options`` (``group_size``, ``symmetric``, ``actorder``, ``dampening_frac``), ``keep``. Inputs: ``checkpoint``,
``calibration``. Output: the quantized checkpoint with every other file of the source beside it.

``actorder``: ``static`` is its group-aware order, which leaves the columns where they are; ``group`` is the classical
one, stored with the weights (``desc_act``).
"""

from __future__ import annotations

import os
from typing import Any

from checkpoint_files import carry_over, keep_config, read_json, samples
from worker_api import Events, Job, Refusal, run_worker

OF_THIS_RUN = ("meta", "offload_to_disk_path")
"""Fields of its config that hold a path or an address, and nothing that a reader needs."""


def work(job: Job, events: Events) -> None:
    # one OpenMP thread breaks its loader's pool; the workers are its own setting
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(max(2, job.threads))
    os.environ["GPTQMODEL_CPU_WORKERS"] = str(max(2, job.threads))
    import torch
    from gptqmodel import GPTQModel, QuantizeConfig

    torch.manual_seed(0)
    if job.params["keep"] != ["lm_head"]:
        raise Refusal("keep: GPTQModel leaves the output head only", "Leave keep out, or use tool: llm-compressor")
    options, source = job.params["options"], job.inputs["checkpoint"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = QuantizeConfig(
        bits=4,
        group_size=options["group_size"],
        sym=options["symmetric"],
        desc_act=options["actorder"] == "group",
        act_group_aware=options["actorder"] == "static",
        damp_percent=options["dampening_frac"],
        device=device,
    )
    model = GPTQModel.load(str(source), config)
    rows = samples(job.inputs["calibration"])
    _report(model, events)
    model.quantize([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in rows], batch_size=1)
    events.log("writing the checkpoint")
    model.save(str(job.output))
    quantization: dict[str, Any] = read_json(job.output / "config.json")["quantization_config"]
    keep_config(source, job.output, {name: value for name, value in quantization.items() if name not in OF_THIS_RUN})
    for stray in ("quant_log.csv", "quantize_config.json", "generation_config.json"):
        (job.output / stray).unlink(missing_ok=True)
    carry_over(source, job.output)


def _report(model: Any, events: Events) -> None:
    layers = int(getattr(model.model.config, "num_hidden_layers", 0))
    events.progress(0, layers, "layers")


if __name__ == "__main__":
    run_worker(work)
