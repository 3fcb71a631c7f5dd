"""Quantize with ModelOpt and write TensorRT-LLM's checkpoint: ``config.json`` and one file a rank.

Params: ``scheme`` (:data:`CONFIGS`), ``kv_cache`` (null or ``fp8``), ``dtype`` of what is not quantized,
``tensor_parallel``, ``pipeline_parallel``, ``group_size`` (awq, 128 unless given). Inputs: ``checkpoint``, saved by
transformers 4 or 5; ``calibration`` (builders/workers/calibration.py) for what observes activations: every scheme but
:data:`DATA_FREE`, and the cache. Output: a TensorRT-LLM checkpoint.
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
DATA_FREE = ("none", "fp8", "int8-weight-only")
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
    model = _load(folder)
    if config := _quantization(params["scheme"], params["kv_cache"], params.get("group_size")):
        _quantize(model, config, job, events)
    events.log("writing the checkpoint")
    _export(model, DECODERS[architecture], job)
    _complete(job.output, original, architecture, events)


def check(params: dict[str, Any], original: dict[str, Any], *, calibrated: bool) -> None:
    """Refuse what ModelOpt would fail on only after the calibration, or (an FP8 cache without data) not at all."""
    scheme, kv_cache, dtype = params["scheme"], params["kv_cache"], params["dtype"]
    architecture = str((original.get("architectures") or ["?"])[0])
    if architecture not in DECODERS:
        raise Refusal(f"source: a {architecture} has no TensorRT-LLM export here", f"Known: {', '.join(DECODERS)}")
    if scheme not in CONFIGS:
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


def _load(folder: Path) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    written = AutoConfig.from_pretrained(folder).torch_dtype or torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=_compute_dtype(written))
    return (model.cuda() if torch.cuda.is_available() else model).eval()


def _compute_dtype(written: Any) -> Any:
    """The source's own type where the hardware multiplies matrices in it, else 32 bits: never one that rounds it."""
    import torch

    if torch.cuda.is_available():
        return written
    has = torch.cpu.get_capabilities()
    native = written == torch.bfloat16 and (has.get("avx512_bf16") or has.get("amx_bf16"))
    return written if native else torch.float32


def _quantization(scheme: str, kv_cache: str | None, group_size: int | None) -> dict[str, Any] | None:
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
    _write(output / "config.json", config | missing)


def _write(path: Path, values: dict[str, Any]) -> None:
    path.unlink(missing_ok=True)  # a link to the source, which is not ours to change
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_worker(work)
