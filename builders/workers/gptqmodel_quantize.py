"""Quantize with GPTQModel into Hugging Face's GPTQ format (``quant_method: gptq``).

Params: ``options`` (``group_size``, ``symmetric``, ``actorder``, ``dampening_frac``), ``keep``. Inputs: ``checkpoint``,
``calibration``. Output: the quantized checkpoint with every other file of the source beside it.

Where the tool keeps finished layers (``RESUMES``), they stand in ``scratch`` and a killed run goes on after the last of
them. It takes them up only with the same source, options, calibration and versions (its own fingerprint).

``actorder``: ``static`` is its group-aware order, which leaves the columns where they are; ``group`` is the classical
one, stored with the weights (``desc_act``).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from checkpoint_files import carry_over, keep_config, read_json, samples, write_json
from worker_api import Events, Job, Refusal, ToolFailed, run_worker

OF_THIS_RUN = ("meta", "offload_to_disk_path")
"""Fields of its config that hold a path or an address, and nothing that a reader needs."""
RESUMES = ("llama", "qwen3_moe")
"""Model types whose state the tool can take up again (GPTQModel 7.6, ``validate_checkpoint_support``)."""

SHARD_BYTES = 5 * 10**9


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
    _quantize(model, [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in rows], job, events)
    events.log("writing the checkpoint")
    model.save(str(job.output))
    _in_order(job.output)
    quantization: dict[str, Any] = read_json(job.output / "config.json")["quantization_config"]
    keep_config(source, job.output, {name: value for name, value in quantization.items() if name not in OF_THIS_RUN})
    for stray in ("quant_log.csv", "quantize_config.json", "generation_config.json"):
        (job.output / stray).unlink(missing_ok=True)
    carry_over(source, job.output)


def _quantize(model: Any, batches: list[dict[str, list[int]]], job: Job, events: Events) -> None:
    from gptqmodel import CheckpointConfig
    from gptqmodel.looper.checkpoint import CheckpointExtension
    from gptqmodel.looper.checkpoint_store import CheckpointError

    layers = int(model.model.config.num_hidden_layers)
    if model.model.config.model_type not in RESUMES:
        events.progress(0, layers, "layers")
        model.quantize(batches, batch_size=1)
        return
    kept = job.scratch / "layers"
    original = CheckpointExtension.on_boundary
    begin = CheckpointExtension.prepare

    def counted(self: Any, boundary: Any) -> Any:
        result = original(self, boundary)
        events.progress(self.next_step, layers, "layers")
        return result

    def begun(self: Any, *arguments: Any) -> Any:
        done = begin(self, *arguments)
        if done:
            events.log(f"going on after layer {done} of {layers}")
        events.progress(done, layers, "layers")
        return done

    CheckpointExtension.on_boundary, CheckpointExtension.prepare = counted, begun
    try:
        model.quantize(batches, batch_size=1, checkpoint=CheckpointConfig(path=kept))
    except CheckpointError as error:
        # Another machine's, another version's, or cut short: what it holds is worth less than a sure result.
        shutil.rmtree(kept, ignore_errors=True)
        raise ToolFailed("tool", f"the kept layers can't be taken up: {error}", "Run again: it starts over") from error


def _in_order(folder: Path) -> None:
    """Write the tensors sorted by name: the tool's order, and its split into shards, depend on where a run began."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    place = {}
    for path in folder.glob("*.safetensors"):
        path.rename(old := path.with_suffix(".unsorted"))
        with safe_open(old, "pt") as file:
            place |= dict.fromkeys(file.keys(), old)
    sizes = {name: _bytes(path, name) for name, path in place.items()}
    shards: list[list[str]] = [[]]
    for name in sorted(place):
        if shards[-1] and sum(sizes[other] for other in shards[-1]) + sizes[name] > SHARD_BYTES:
            shards.append([])
        shards[-1].append(name)
    index: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        file_name = f"model-{number:05}-of-{len(shards):05}.safetensors" if len(shards) > 1 else "model.safetensors"
        tensors = {}
        for name in names:
            with safe_open(place[name], "pt") as file:
                tensors[name] = file.get_tensor(name)
        save_file(tensors, folder / file_name, metadata={"format": "pt"})
        (folder / file_name).chmod(0o644)
        index |= dict.fromkeys(names, file_name)
    for old in set(place.values()):
        old.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    if len(shards) > 1:
        content = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": index}
        write_json(folder / "model.safetensors.index.json", content)


def _bytes(path: Path, name: str) -> int:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        tensor = file.get_tensor(name)
    return tensor.numel() * tensor.element_size()


if __name__ == "__main__":
    run_worker(work)
