"""Answer one prompt from a checkpoint, greedily, on whatever this machine has.

Params: ``prompt``, ``max_new_tokens``, ``system_prompt`` (null: whatever the chat template says by itself).
Inputs: ``checkpoint``. Output: ``answer.json`` with ``text``, ``tokens`` and ``seconds`` (generating, not loading).
"""

from __future__ import annotations

import json
import time

from worker_api import Events, Job, Refusal, run_worker


def work(job: Job, events: Events) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(job.threads)
    checkpoint = job.inputs["checkpoint"]
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    events.log(f"loading on {device}")
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto" if device.type != "cpu" else torch.float32)
    model = model.to(device).eval()
    system = job.params.get("system_prompt")
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": job.params["prompt"]}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    elif system is not None:
        raise Refusal("system_prompt: the checkpoint has no chat template to put it in", "Leave it out")
    else:
        text = job.params["prompt"]
    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=not tokenizer.chat_template).to(device)
    started = time.monotonic()
    with torch.inference_mode():
        output = model.generate(**inputs, max_new_tokens=job.params["max_new_tokens"], do_sample=False)
    new = output[0, inputs["input_ids"].shape[1] :]
    answer = {
        "text": tokenizer.decode(new, skip_special_tokens=True).strip(),
        "tokens": len(new),
        "seconds": round(time.monotonic() - started, 3),
    }
    (job.output / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    run_worker(work)
