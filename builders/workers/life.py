"""Does a quantized checkpoint live: does the library that serves it load it, and does it answer like a model?

Inputs: ``source``, ``output`` (checkpoints). Output: ``life.json``, ``{"findings": [{check, subject, seen, wanted,
severity}], "answers": {prompt: text}}``.

Ten prompts, plain and rendered by the chat template, must become the same tokens with both tokenizers. Logits must be
finite, and greedy answers not degenerate (empty, one token over and over, a short loop) where the source's are not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from worker_api import Events, Job, run_worker

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "1, 1, 2, 3, 5, 8,",
    "Über die Brücke gehen — naïve café, 東京, 🙂",
    "Once upon a time",
    "   leading spaces\tand\ttabs",
    "<|im_start|>user\nhello<|im_end|>",
    "SELECT name FROM users WHERE id = 42;",
    "a" * 40,
    "Line one.\n\nLine two.\r\n",
)
ANSWERED = PROMPTS[:5]
NEW_TOKENS = 24
LOOP = 3
"""Tokens of the longest loop looked for."""


def work(job: Job, events: Events) -> None:
    import torch

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    source, output = job.inputs["source"], job.inputs["output"]
    findings = list(_tokens(source, output))
    events.log("loading the checkpoint as it is served")
    answers, wrong = _answers(output)
    if any(degenerate(ids) for ids in answers.values()) and not wrong:
        originals, _ = _answers(source)
        looping = [prompt for prompt, ids in answers.items() if degenerate(ids) and not degenerate(originals[prompt])]
        most = len(looping) > len(answers) / 2  # a small model may fall into one loop or another by itself
        for prompt in looping:
            seen = f"a degenerate answer ({answers[prompt][:8]}…)"
            severity = "error" if most else "warning"
            wrong.append(_finding("life", repr(prompt), seen, "an answer like the source's", severity))
    texts = _texts(output, answers)
    document = {"findings": findings + wrong, "answers": texts}
    (job.output / "life.json").write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")


def degenerate(ids: list[int]) -> bool:
    """Empty, or the second half of it repeats one to :data:`LOOP` tokens."""
    if not ids:
        return True
    tail = ids[len(ids) // 2 :]
    return len(tail) > 2 * LOOP and any(
        all(tail[place] == tail[place % size] for place in range(len(tail))) for size in range(1, LOOP + 1)
    )


def _tokens(source: Path, output: Path) -> list[dict[str, Any]]:
    from transformers import AutoTokenizer

    ours, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (output, source))
    found = []
    for prompt in PROMPTS:
        if ours(prompt)["input_ids"] != theirs(prompt)["input_ids"]:
            found.append(_finding("tokens", repr(prompt), "other token ids", "the source's"))
        if theirs.chat_template:
            message = [{"role": "user", "content": prompt}]
            rendered = [
                tokenizer.apply_chat_template(message, tokenize=True, add_generation_prompt=True, return_dict=False)
                for tokenizer in (ours, theirs)
            ]
            if rendered[0] != rendered[1]:
                found.append(_finding("tokens", f"chat {prompt!r}", "other token ids", "the source's"))
    return found


def _answers(folder: Path) -> tuple[dict[str, list[int]], list[dict[str, Any]]]:
    """Greedy answers by prompt, and what was wrong with the logits."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    able = torch.cpu.get_capabilities()
    native = device == "cuda" or any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto" if native else torch.float32, device_map=device
    ).eval()
    answers: dict[str, list[int]] = {}
    wrong: list[dict[str, Any]] = []
    for prompt in ANSWERED:
        inputs = tokenizer(prompt, return_tensors="pt").to(device)
        with torch.no_grad():
            logits = model(**inputs).logits
            if not bool(torch.isfinite(logits).all()):
                wrong.append(_finding("life", repr(prompt), "NaN or infinite logits", "finite ones"))
                answers[prompt] = []
                continue
            new = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
        answers[prompt] = new[0, inputs["input_ids"].shape[1] :].tolist()
    return answers, wrong


def _texts(folder: Path, answers: dict[str, list[int]]) -> dict[str, str]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return {prompt: tokenizer.decode(ids, skip_special_tokens=True) for prompt, ids in answers.items()}


def _finding(check: str, subject: str, seen: str, wanted: str, severity: str = "error") -> dict[str, Any]:
    return {"check": check, "subject": subject, "seen": seen, "wanted": wanted, "severity": severity}


if __name__ == "__main__":
    run_worker(work)
