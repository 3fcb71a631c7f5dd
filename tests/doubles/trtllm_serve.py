"""A double of ``trtllm-serve``: the OpenAI completions interface over transformers on ``DOUBLE_CHECKPOINT``.

For tests of the evaluation through a server. With ``DOUBLE_MUTE`` it ignores ``echo``, as some servers do.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CHECKPOINT = os.environ["DOUBLE_CHECKPOINT"]
MODEL = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()
TOKENIZER = AutoTokenizer.from_pretrained(CHECKPOINT)


def choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    prompts = body["prompt"]
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        prompts = [prompts]
    return [choice(place, prompt, body) for place, prompt in enumerate(prompts)]


def choice(index: int, prompt: str | list[int], body: dict[str, Any]) -> dict[str, Any]:
    ids = TOKENIZER(prompt)["input_ids"] if isinstance(prompt, str) else prompt
    with torch.no_grad():
        scores = MODEL(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    following = int(scores[-1].argmax())
    chosen = [None, *(float(scores[n, token]) for n, token in enumerate(ids[1:])), float(scores[-1, following])]
    best = [None, *({"best": float(row.max())} for row in scores)]
    if os.environ.get("DOUBLE_MUTE") or not body.get("echo"):
        chosen, best = chosen[-1:], best[-1:]
    logprobs = {"tokens": [], "token_logprobs": chosen, "top_logprobs": best} if body.get("logprobs") else None
    return {"index": index, "text": TOKENIZER.decode([following]), "logprobs": logprobs, "finish_reason": "length"}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "engine"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body.get("stream"):
            self.stream(body["max_tokens"])
            return
        self.answer({"object": "text_completion", "model": "engine", "choices": choices(body)})

    def stream(self, tokens: int) -> None:
        """As many events as tokens were asked for: a benchmark measures times, not words."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for _ in range(tokens):
            self.wfile.write(b'data: {"choices": [{"index": 0, "text": "x"}]}\n\n')
        self.wfile.write(b"data: [DONE]\n\n")

    def answer(self, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
