"""Quantize with ModelOpt and write TensorRT-LLM's checkpoint: ``config.json`` and one file a rank.

Params: ``scheme`` (:data:`CONFIGS`), ``kv_cache`` (null or ``fp8``), ``dtype`` of what is not quantized,
``tensor_parallel``, ``pipeline_parallel``, ``group_size`` (awq). Inputs: ``checkpoint``, saved by transformers 4 or 5;
``calibration`` (builders/workers/calibration.py) for schemes that observe activations.
Output: a TensorRT-LLM checkpoint.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

from worker_api import Events, Job, Refusal, run_worker

CONFIGS = {
    "none": None,
    "fp8": "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "fp8-static": "FP8_DEFAULT_CFG",
    "int8": "INT8_SMOOTHQUANT_CFG",
    "int8-weight-only": "INT8_WEIGHT_ONLY_CFG",
    "awq": "INT4_AWQ_CFG",
    "w4a8-awq": "W4A8_AWQ_BETA_CFG",
}
"""Scheme → ModelOpt's configuration."""
DECODERS = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen",
    "Qwen3ForCausalLM": "qwen",
}
"""Architecture → ModelOpt's ``decoder_type``."""
QWEN_TYPES = {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}


def work(job: Job, events: Events) -> None:
    import torch

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    params = job.params
    folder = transformers_4_view(job.inputs["checkpoint"], job.scratch / "checkpoint")
    model, architecture = _load(folder)
    if config := _quantization(params["scheme"], params["kv_cache"], params.get("group_size")):
        _quantize(model, config, job, events)
    events.log("writing the checkpoint")
    _export(model, DECODERS[architecture], job)
    _complete(job.output, folder, architecture, events)


def transformers_4_view(source: Path, view: Path) -> Path:
    """The checkpoint in the words of transformers 4, which this toolchain has: links, and two files rewritten.

    transformers 5 writes ``rope_parameters``, ``dtype`` and ``tokenizer_class: TokenizersBackend``; ModelOpt under
    transformers 5 drops the rope fields from its export.
    """
    shutil.rmtree(view, ignore_errors=True)
    view.mkdir(parents=True)
    for path in source.iterdir():
        (view / path.name).symlink_to(path)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    rope = dict(config.pop("rope_parameters", None) or {})
    if "rope_theta" in rope:
        config["rope_theta"] = rope.pop("rope_theta")
    if rope and rope.get("rope_type", "default") != "default":
        config["rope_scaling"] = rope
    if "dtype" in config:
        config.setdefault("torch_dtype", config.pop("dtype"))
    _write(view / "config.json", config)
    tokenizer = view / "tokenizer_config.json"
    if tokenizer.exists():
        values = json.loads(tokenizer.read_text(encoding="utf-8"))
        if values.get("tokenizer_class") == "TokenizersBackend":
            _write(tokenizer, values | {"tokenizer_class": "PreTrainedTokenizerFast"})
    return view


def _load(folder: Path) -> tuple[Any, str]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    architecture = str((AutoConfig.from_pretrained(folder).architectures or ["?"])[0])
    if architecture not in DECODERS:
        raise Refusal(f"source: a {architecture} has no TensorRT-LLM export here", f"Known: {', '.join(DECODERS)}")
    gpu = torch.cuda.is_available()
    able = torch.cpu.get_capabilities()
    native = gpu or any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.bfloat16 if native else torch.float32)
    return (model.cuda() if gpu else model).eval(), architecture


def _quantization(scheme: str, kv_cache: str | None, group_size: int | None) -> dict[str, Any] | None:
    import modelopt.torch.quantization as mtq

    if scheme not in CONFIGS:
        raise Refusal(f"scheme: {scheme!r} is none of ModelOpt's here", f"Known: {', '.join(CONFIGS)}")
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
    return config


def _quantize(model: Any, config: dict[str, Any], job: Job, events: Events) -> None:
    import modelopt.torch.quantization as mtq
    import torch

    samples = _samples(job)

    def observe(observed: Any) -> None:
        for place, ids in enumerate(samples):
            with torch.no_grad():
                observed(torch.tensor([ids], device=observed.device))
            events.progress(place + 1, len(samples), "samples")

    mtq.quantize(model, config, observe if samples else None)


def _samples(job: Job) -> list[list[int]]:
    if "calibration" not in job.inputs:
        return []
    lines = (job.inputs["calibration"] / "calibration.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["input_ids"] for line in lines]


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


def _complete(output: Path, source: Path, architecture: str, events: Events) -> None:
    """Fields that TensorRT-LLM needs and ModelOpt leaves out."""
    config = json.loads((output / "config.json").read_text(encoding="utf-8"))
    original = json.loads((source / "config.json").read_text(encoding="utf-8"))
    wanted = {
        "qwen_type": QWEN_TYPES.get(architecture),
        "rotary_base": original.get("rope_theta"),
        "rotary_scaling": original.get("rope_scaling"),
    }
    missing = {name: value for name, value in wanted.items() if value is not None and config.get(name) is None}
    if missing:
        events.log(f"completing config.json: {', '.join(missing)}")
    config.pop("rank", None)  # the last rank's number, of no meaning for the whole
    _write(output / "config.json", config | missing)


def _write(path: Path, values: dict[str, Any]) -> None:
    path.unlink(missing_ok=True)  # a link to the source, which is not ours to change
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_worker(work)
