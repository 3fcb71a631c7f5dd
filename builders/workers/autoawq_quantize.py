"""Quantize with AutoAWQ into AWQ's GEMM format (``quant_method: awq``).

Params: ``options`` (``group_size``, ``symmetric``: false, ``duo_scaling``), ``keep``. Inputs: ``checkpoint``, saved by
transformers 4 or 5; ``calibration``. Output: the quantized checkpoint with every other file of the source beside it.
"""

from __future__ import annotations

from typing import Any

from checkpoint_files import carry_over, keep_config, read_json, samples, transformers_4_view
from worker_api import Events, Job, Refusal, run_worker


def work(job: Job, events: Events) -> None:
    import torch
    from awq import AutoAWQForCausalLM
    from transformers import AutoTokenizer

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    options, source = job.params["options"], job.inputs["checkpoint"]
    if job.params["keep"] != ["lm_head"]:
        raise Refusal("keep: AutoAWQ leaves the output head only", "Leave keep out, or use tool: llm-compressor")
    view = transformers_4_view(source, job.scratch / "checkpoint")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoAWQForCausalLM.from_pretrained(str(view), device_map=device, safetensors=True)
    rows = samples(job.inputs["calibration"])
    _report(events)
    model.quantize(
        AutoTokenizer.from_pretrained(view),
        quant_config={"zero_point": True, "q_group_size": options["group_size"], "w_bit": 4, "version": "GEMM"},
        calib_data=rows,
        max_calib_samples=len(rows),
        max_calib_seq_len=max(map(len, rows)),  # longer texts would be dropped in silence
        duo_scaling=bool(options["duo_scaling"]),
    )
    events.log("writing the checkpoint")
    model.save_quantized(str(job.output))
    written: dict[str, Any] = read_json(job.output / "config.json")
    keep_config(source, job.output, written["quantization_config"], written.get("torch_dtype"))
    (job.output / "generation_config.json").unlink(missing_ok=True)
    carry_over(source, job.output)


def _report(events: Events) -> None:
    """AutoAWQ shows its layers with tqdm."""
    from awq.quantize import quantizer

    class Reporting(quantizer.tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            result = super().update(n)
            events.progress(self.n, self.total, "layers")
            return result

        def __iter__(self) -> Any:
            for place, item in enumerate(super().__iter__()):
                events.progress(place, self.total, "layers")
                yield item

    quantizer.tqdm = Reporting


if __name__ == "__main__":
    run_worker(work)
