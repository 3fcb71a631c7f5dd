"""Quantize with AutoGPTQ into Hugging Face's GPTQ format (``quant_method: gptq``).

Params: ``options`` (``group_size``, ``symmetric``, ``actorder``: null or ``group``, ``dampening_frac``), ``keep``.
Inputs: ``checkpoint``, saved by transformers 4 or 5; ``calibration``. Output: the quantized checkpoint with every
other file of the source beside it.

AutoGPTQ asks for CUDA at its front door only: on a machine without, its model class is made directly, on the processor.
"""

from __future__ import annotations

from typing import Any

from checkpoint_files import carry_over, keep_config, read_json, samples, transformers_4_view
from worker_api import Events, Job, Refusal, run_worker

OF_THIS_RUN = ("model_name_or_path", "model_file_base_name")


def work(job: Job, events: Events) -> None:
    import torch
    from auto_gptq import BaseQuantizeConfig
    from auto_gptq.modeling.auto import GPTQ_CAUSAL_LM_MODEL_MAP
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    options, source = job.params["options"], job.inputs["checkpoint"]
    if job.params["keep"] != ["lm_head"]:
        raise Refusal("keep: AutoGPTQ leaves the output head only", "Leave keep out, or use tool: llm-compressor")
    view = transformers_4_view(source, job.scratch / "checkpoint")
    on_gpu = torch.cuda.is_available()
    loaded = AutoModelForCausalLM.from_pretrained(view, torch_dtype=torch.float16 if on_gpu else torch.float32).eval()
    kind = loaded.config.model_type
    if kind not in GPTQ_CAUSAL_LM_MODEL_MAP:
        raise Refusal(f"source: AutoGPTQ does not know {kind!r}", "tool: gptqmodel or llm-compressor")
    config = BaseQuantizeConfig(
        bits=4,
        group_size=options["group_size"],
        sym=options["symmetric"],
        desc_act=options["actorder"] == "group",
        damp_percent=options["dampening_frac"],
        model_file_base_name="model",  # the name that every other library looks for
    )
    model = GPTQ_CAUSAL_LM_MODEL_MAP[kind](loaded, False, config)
    if not on_gpu:
        _without_cuda()
    rows = [torch.tensor([ids]) for ids in samples(job.inputs["calibration"])]
    model.quantize([{"input_ids": ids, "attention_mask": torch.ones_like(ids)} for ids in rows], batch_size=1)
    events.log("writing the checkpoint")
    model.save_quantized(str(job.output))
    quantization: dict[str, Any] = read_json(job.output / "config.json")["quantization_config"]
    keep_config(source, job.output, {name: value for name, value in quantization.items() if name not in OF_THIS_RUN})
    (job.output / "quantize_config.json").unlink(missing_ok=True)
    carry_over(source, job.output)


def _without_cuda() -> None:
    import auto_gptq.modeling._base
    import torch

    auto_gptq.modeling._base.CUDA_0 = torch.device("cpu")
    torch.cuda.synchronize = lambda *_args, **_kwargs: None


if __name__ == "__main__":
    run_worker(work)
