"""Perplexity of a checkpoint on a text: what quantizing costs where no task asks.

Params: ``file`` (a name in ``text``), ``windows``, ``length`` (tokens). Inputs: ``checkpoint``, ``text`` (a folder).
Output: ``perplexity.json``, ``{"perplexity", "tokens"}``. Windows are evenly spaced and do not overlap; each token is
predicted from those before it in its window.
"""

from __future__ import annotations

import json
import math

from worker_api import Events, Job, Refusal, run_worker


def work(job: Job, events: Events) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(job.threads)
    checkpoint, length = job.inputs["checkpoint"], int(job.params["length"])
    text = (job.inputs["text"] / job.params["file"]).read_text(encoding="utf-8")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"][0]
    wanted = int(job.params["windows"])
    if len(ids) < wanted * length:
        raise Refusal(f"text: {len(ids)} tokens, wanted {wanted * length}", "Ask for fewer or shorter windows")
    starts = [place * (len(ids) // wanted) for place in range(wanted)]
    able = torch.cpu.get_capabilities()
    native = torch.cuda.is_available() or able.get("avx512_bf16") or able.get("amx_bf16")
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto" if native else torch.float32).eval()
    if torch.cuda.is_available():
        model = model.cuda()
    total, count = 0.0, 0
    for place, start in enumerate(starts):
        window = ids[start : start + length].unsqueeze(0).to(model.device)
        with torch.no_grad():
            logits = model(window).logits[0, :-1].float()
        total += float(torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="sum"))
        count += length - 1
        events.progress(place + 1, wanted, "windows")
    document = {"perplexity": math.exp(total / count), "tokens": count}
    (job.output / "perplexity.json").write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    run_worker(work)
