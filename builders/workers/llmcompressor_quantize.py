"""Quantize a checkpoint with llm-compressor into the compressed-tensors format that vLLM and transformers load.

Params: ``scheme``, ``options`` (the scheme's fields in recipes/variants.py), ``keep`` (modules left as they are).
Inputs: ``checkpoint``; ``calibration`` (builders/workers/calibration.py) for every scheme but ``fp8``.
Output: the quantized checkpoint with every other file of the source beside it.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
from pathlib import Path
from typing import Any

from checkpoint_files import carry_over, read_json, samples, write_json
from memory import memory_for_weights
from worker_api import Events, Job, Refusal, run_worker


def work(job: Job, events: Events) -> None:
    import torch
    from transformers import AutoConfig

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    _quiet()
    source = job.inputs["checkpoint"]
    written = AutoConfig.from_pretrained(source).dtype or torch.bfloat16
    model = _load(source, written, job, events)
    model.eval()
    keep = list(job.params["keep"])
    _check_keep(model, keep)
    _check_groups(model, keep, job.params["options"].get("group_size"))
    _report_layers(model, events, calibrated="calibration" in job.inputs)
    _run(model, job, keep)
    events.log("writing the checkpoint")
    model.save_pretrained(job.output, save_compressed=True)
    config = read_json(job.output / "config.json")
    write_json(job.output / "config.json", config | {"dtype": str(written).removeprefix("torch.")})
    _cast_leftovers(job.output, written, scales_too=job.params["scheme"] in ("gptq", "awq"))
    for stray in ("recipe.yaml", "generation_config.json"):
        (job.output / stray).unlink(missing_ok=True)
    carry_over(source, job.output)


def _load(source: Path, stored: Any, job: Job, events: Events) -> Any:
    """The model in memory; where that is short, what does not fit stays on disk and comes in layer by layer."""
    from transformers import AutoModelForCausalLM

    dtype, room = _compute_dtype(stored), memory_for_weights()
    files = (path.stat().st_size for path in source.iterdir() if path.suffix in (".safetensors", ".bin"))
    weights = sum(files) * dtype.itemsize // stored.itemsize
    if weights <= room:
        return AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    from compressed_tensors.offload import load_offloaded_model

    events.log(f"{weights / 1e9:.1f} GB of weights and memory for {room / 1e9:.1f} GB: the rest waits on disk")
    shutil.rmtree(job.scratch, ignore_errors=True)
    job.scratch.mkdir(parents=True)
    with load_offloaded_model():
        return AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, device_map="auto_offload", max_memory={"cpu": room}, offload_folder=str(job.scratch)
        )


def _run(model: Any, job: Job, keep: list[str]) -> None:
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier

    options = job.params["options"]
    modifiers: list[Any] = []
    match job.params["scheme"]:
        case "fp8":
            modifiers = [QuantizationModifier(targets="Linear", scheme="FP8_DYNAMIC", ignore=keep)]
        case "fp8-static":
            modifiers = [QuantizationModifier(targets="Linear", scheme="FP8", ignore=keep)]
        case "int8":
            if options["smoothing_strength"] is not None:
                modifiers.append(SmoothQuantModifier(smoothing_strength=options["smoothing_strength"], ignore=keep))
            if options["method"] == "gptq":
                modifiers.append(
                    GPTQModifier(targets="Linear", scheme="W8A8", ignore=keep, dampening_frac=options["dampening_frac"])
                )
            else:
                modifiers.append(QuantizationModifier(targets="Linear", scheme="W8A8", ignore=keep))
        case "gptq":
            modifiers = [
                GPTQModifier(
                    config_groups=_four_bits(options),
                    ignore=keep,
                    actorder=options["actorder"],
                    dampening_frac=options["dampening_frac"],
                )
            ]
        case "awq":
            _unpinned()
            modifiers = [
                AWQModifier(n_grid=options["n_grid"], duo_scaling=options["duo_scaling"]),
                QuantizationModifier(config_groups=_four_bits(options), ignore=keep),
            ]
        case scheme:
            raise Refusal(f"scheme: {scheme!r} is none of llm-compressor's here")
    if "calibration" not in job.inputs:
        oneshot(model=model, recipe=modifiers)
        return
    data = _samples(job.inputs["calibration"])
    oneshot(model=model, recipe=modifiers, dataset=data, num_calibration_samples=len(data), pipeline="sequential")


def _four_bits(options: dict[str, Any]) -> dict[str, Any]:
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    weights = QuantizationArgs(
        num_bits=4, type="int", strategy="group", group_size=options["group_size"], symmetric=options["symmetric"]
    )
    return {"group_0": QuantizationScheme(targets=["Linear"], weights=weights)}


def _samples(folder: Path) -> Any:
    """The prepared samples, one a batch, in their order."""
    import torch
    from torch.utils.data import DataLoader

    rows = samples(folder)
    batches = [
        {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)} for ids in rows
    ]
    return DataLoader(batches, batch_size=None)


def _compute_dtype(written: Any) -> Any:
    """The type to compute in: the one to be written, where the hardware multiplies matrices in it; else 32 bits.

    Processors with bfloat16 instructions do so at 4 times their 32-bit rate, those without at an eighth of it.
    """
    import torch

    if torch.accelerator.is_available():
        return written
    has = torch.cpu.get_capabilities()
    native = written == torch.bfloat16 and (has.get("avx512_bf16") or has.get("amx_bf16"))
    return written if native else torch.float32


def _cast_leftovers(folder: Path, dtype: Any, *, scales_too: bool) -> None:
    """Bring what was computed in 32 bits to the type to be written. Scales of 8-bit weights stay: servers keep them so,
    and rounding them would no longer fit the weights that were rounded by them."""
    import torch
    from safetensors.torch import load_file, save_file

    def to_cast(name: str, tensor: Any) -> bool:
        return tensor.dtype == torch.float32 and dtype != torch.float32 and (scales_too or not name.endswith("_scale"))

    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        tensors = load_file(path)
        if any(to_cast(name, tensor) for name, tensor in tensors.items()):
            tensors = {name: tensor.to(dtype) if to_cast(name, tensor) else tensor for name, tensor in tensors.items()}
            save_file(tensors, path, metadata={"format": "pt"})
        path.chmod(0o644)  # written for the owner alone, and servers run as someone else
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = folder / "model.safetensors.index.json"
    if index.exists():
        content = json.loads(index.read_text(encoding="utf-8"))
        content["metadata"]["total_size"] = total
        index.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _check_keep(model: Any, keep: list[str]) -> None:
    """Every entry must name a module without modules of its own: keeping a whole block keeps nothing inside it."""
    modules = dict(model.named_modules())
    leaves = [name for name, module in modules.items() if not list(module.children())]
    for pattern in keep:
        try:
            found = any(_kept(name, [pattern]) for name in leaves)
        except re.error as error:
            raise Refusal(f"keep: {pattern!r} is no regular expression ({error})", "Mind its brackets") from None
        if found:
            continue
        if pattern in modules:
            inside = f"re:{re.escape(pattern)}\\..*"
            raise Refusal(f"keep: {pattern!r} is a block, not a layer", f"For all of its layers: {inside!r}")
        last = {name.split(".")[-1] for name in leaves}
        near = {name: f"re:.*{name}$" for name in last} | {name: name for name in leaves}
        close = [near[name] for name in difflib.get_close_matches(pattern.removeprefix("re:"), near, n=3)]
        raise Refusal(f"keep: {pattern!r} matches no module", f"Near ones: {', '.join(close)}" if close else "")


def _kept(name: str, keep: list[str]) -> bool:
    """Whether compressed-tensors' ``ignore`` takes this module: ``re:`` matches from the start, names must be equal."""
    return any(re.match(pattern[3:], name) if pattern.startswith("re:") else pattern == name for pattern in keep)


def _check_groups(model: Any, keep: list[str], group_size: int | None) -> None:
    import torch

    if group_size is None:
        return
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and not _kept(name, keep) and module.in_features % group_size:
            fitting = [str(size) for size in (128, 64, 32, 16) if module.in_features % size == 0]
            raise Refusal(
                f"group_size: {group_size} does not divide the {module.in_features} inputs of {name}",
                f"Sizes that do: {', '.join(fitting)}"
                if fitting
                else "Keep this layer, or use a scheme without groups",
            )


def _report_layers(model: Any, events: Events, *, calibrated: bool) -> None:
    """Report each finished decoder layer: llm-compressor calls this once for each and once more for what follows.

    Without calibration data there is one pass over the whole model.
    """
    from llmcompressor.core.session_functions import LifecycleCallbacks

    total = int(getattr(model.config.get_text_config(), "num_hidden_layers", 0)) + 1 if calibrated else 1
    unit = "layers" if calibrated else "passes"
    original = LifecycleCallbacks.sequential_epoch_end.__func__
    done = 0

    def counted(cls: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal done
        result = original(cls, *args, **kwargs)
        done += 1
        events.progress(done, max(done, total), unit)
        return result

    LifecycleCallbacks.sequential_epoch_end = classmethod(counted)
    events.progress(0, total, unit)


def _unpinned() -> None:
    """AWQ pins its cached activations for copies to a GPU; without one, pinning itself raises."""
    import torch
    from llmcompressor.pipelines.cache import IntermediatesCache

    if not torch.accelerator.is_available():
        IntermediatesCache.pin_memory = lambda *_args, **_kwargs: None


def _quiet() -> None:
    from loguru import logger

    logger.disable("llmcompressor.metrics")


if __name__ == "__main__":
    run_worker(work)
