"""Quantize with ModelOpt and write TensorRT-LLM's checkpoint: ``config.json`` and one file a rank.

Params: ``scheme`` (modelopt_common.CONFIGS), ``kv_cache`` (null or ``fp8``), ``dtype`` of what is not quantized,
``tensor_parallel``, ``pipeline_parallel``, ``group_size`` (awq, 128 unless given). Inputs: ``checkpoint``, saved by
transformers 4 or 5; ``calibration`` (builders/workers/calibration.py) for what observes activations: every scheme but
modelopt_common.DATA_FREE, and the cache. Output: a TensorRT-LLM checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from checkpoint_files import transformers_4_view, write_json
from modelopt_common import CONFIGS, DATA_FREE, configuration, load, quantize
from worker_api import Events, Job, Refusal, run_worker

GROUPED = ("awq", "w4a8-awq")
GROUP_SIZE = 128
"""Inputs that share a scale, in ModelOpt's own configurations."""
DECODERS = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen",
    "Qwen3ForCausalLM": "qwen",
}
"""Architecture → ModelOpt's ``decoder_type``."""
QWEN_TYPES = {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}


def work(job: Job, events: Events) -> None:
    params = job.params
    folder = transformers_4_view(job.inputs["checkpoint"], job.scratch / "checkpoint")
    original = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    architecture = str((original.get("architectures") or ["?"])[0])
    check(params, original, calibrated="calibration" in job.inputs)
    import torch

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    model = load(folder)
    if config := configuration(params["scheme"], params["kv_cache"], params.get("group_size"), params.get("n_grid")):
        quantize(model, config, job, events)
    events.log("writing the checkpoint")
    _export(model, DECODERS[architecture], job)
    _complete(job.output, original, architecture, events)


def check(params: dict[str, Any], original: dict[str, Any], *, calibrated: bool) -> None:
    """Refuse what ModelOpt would fail on only after the calibration, or (an FP8 cache without data) not at all."""
    scheme, kv_cache, dtype = params["scheme"], params["kv_cache"], params["dtype"]
    architecture = str((original.get("architectures") or ["?"])[0])
    if architecture not in DECODERS:
        raise Refusal(f"source: a {architecture} has no TensorRT-LLM export here", f"Known: {', '.join(DECODERS)}")
    if scheme not in CONFIGS or scheme == "nvfp4":
        raise Refusal(f"scheme: {scheme!r} is none of ModelOpt's here", f"Known: {', '.join(CONFIGS)}")
    if kv_cache not in (None, "fp8"):
        raise Refusal(f"kv_cache: {kv_cache!r} is not known here", "Known: fp8, or none at all")
    if dtype not in ("bfloat16", "float16"):
        raise Refusal(f"dtype: TensorRT-LLM does not compute in {dtype!r}", "Known: bfloat16, float16")
    if (scheme not in DATA_FREE or kv_cache) and not calibrated:
        what = f"scheme {scheme}" if scheme not in DATA_FREE else f"kv_cache {kv_cache}"
        raise Refusal(f"calibration: {what} observes activations and was given no samples", "Give calibration data")
    _check_split(params, original)


def _check_split(params: dict[str, Any], original: dict[str, Any]) -> None:
    tp, pp = int(params["tensor_parallel"]), int(params["pipeline_parallel"])
    heads, hidden = int(original["num_attention_heads"]), int(original["hidden_size"])
    kv_heads, inter = int(original.get("num_key_value_heads") or heads), int(original["intermediate_size"])
    layers = int(original["num_hidden_layers"])
    for name, size in (("attention heads", heads), ("MLP features", inter)):
        if tp < 1 or size % tp:
            raise Refusal(f"tensor_parallel: {tp} does not divide the {size} {name}", "Choose one that does")
    if kv_heads % tp and tp % kv_heads:
        raise Refusal(f"tensor_parallel: {tp} neither divides {kv_heads} key-value heads nor is a multiple of them")
    if pp < 1 or layers % pp:
        raise Refusal(f"pipeline_parallel: {pp} does not divide the {layers} layers", "Choose one that does")
    if params["scheme"] not in GROUPED:
        return
    group = int(params.get("group_size") or GROUP_SIZE) if params["scheme"] == "awq" else GROUP_SIZE
    attended = heads * int(original.get("head_dim") or hidden // heads)
    widths = (hidden, attended, inter)
    for inputs in widths:
        if inputs % (tp * group):  # ModelOpt asks it of layers split by output too
            fitting = [str(size) for size in (128, 64, 32, 16) if not any(n % (tp * size) for n in widths)]
            raise Refusal(
                f"group_size: {group} does not divide {inputs} inputs over {tp} ranks ({inputs / tp:g} each)",
                f"Sizes that do: {', '.join(fitting)}" if fitting and params["scheme"] == "awq" else "Use fewer ranks",
            )


def _export(model: Any, decoder: str, job: Job) -> None:
    import torch
    from modelopt.torch.export import export_tensorrt_llm_checkpoint

    tp, pp = int(job.params["tensor_parallel"]), int(job.params["pipeline_parallel"])
    export_tensorrt_llm_checkpoint(
        model,
        decoder,
        getattr(torch, job.params["dtype"]),
        export_dir=str(job.output),
        inference_tensor_parallel=tp,
        inference_pipeline_parallel=pp,
    )
    if not (job.output / "config.json").is_file():
        raise RuntimeError("ModelOpt's export wrote nothing; its warning above says why")


def _complete(output: Path, original: dict[str, Any], architecture: str, events: Events) -> None:
    """Fields that TensorRT-LLM needs and ModelOpt leaves out."""
    config = json.loads((output / "config.json").read_text(encoding="utf-8"))
    wanted = {
        "qwen_type": QWEN_TYPES.get(architecture),
        "rotary_base": original.get("rope_theta"),
        "rotary_scaling": original.get("rope_scaling"),
    }
    missing = {name: value for name, value in wanted.items() if value is not None and config.get(name) is None}
    if missing:
        events.log(f"completing config.json: {', '.join(missing)}")
    config.pop("rank", None)  # the last rank's number, of no meaning for the whole
    write_json(output / "config.json", config | missing)


if __name__ == "__main__":
    run_worker(work)
