"""Measure a server: throughput, time to first token, time per output token, end to end, by percentiles.

Params: ``server`` (its command, as for evaluation/workers/lm_eval_run.py), ``input_tokens``, ``output_tokens``,
``concurrency``, ``requests``, ``seed``. Inputs: ``checkpoint`` (for its vocabulary), whatever the command names.
Output: ``benchmark.json``. Times in milliseconds. A request that fails is counted, and is in no percentile.
"""

from __future__ import annotations

import json
import random
import statistics
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import openai_server
from worker_api import Events, Job, run_worker


@dataclass(frozen=True)
class Answer:
    """One request: seconds to the first token, of the whole, and tokens that came."""

    first: float
    whole: float
    tokens: int


def work(job: Job, events: Events) -> None:
    params = job.params
    vocabulary = json.loads((job.inputs["checkpoint"] / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    rng = random.Random(params["seed"])
    folders = {f"{{{name}}}": str(path) for name, path in job.inputs.items()}
    folders |= {f"{{python:{name}}}": python for name, python in job.tools.items()}
    command = [openai_server.filled(word, folders) for word in params["server"]]
    prompts = [
        [rng.randrange(vocabulary) for _ in range(params["input_tokens"])]
        for _ in range(params["requests"] + params["concurrency"])
    ]
    with openai_server.served(command, job.scratch / "server.log", events) as (base, model):

        def ask(prompt: list[int]) -> Answer | None:
            return answer(base, model, prompt, params["output_tokens"])

        with ThreadPoolExecutor(params["concurrency"]) as pool:
            list(pool.map(ask, prompts[: params["concurrency"]]))
            started = time.monotonic()
            answers = []
            for done, one in enumerate(pool.map(ask, prompts[params["concurrency"] :]), 1):
                answers.append(one)
                events.progress(done, params["requests"], "requests")
            seconds = time.monotonic() - started
    document = figures([one for one in answers if one], seconds) | {
        "failed": sum(one is None for one in answers),
        "load": {name: params[name] for name in ("input_tokens", "output_tokens", "concurrency", "requests")},
        "server": params["server"],
    }
    (job.output / "benchmark.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def answer(base: str, model: str, prompt: list[int], tokens: int) -> Answer | None:
    """Stream one completion. None: it failed."""
    body = {
        "model": model, "prompt": prompt, "max_tokens": tokens, "stream": True, "temperature": 0, "ignore_eos": True,
    }  # fmt: skip
    request = urllib.request.Request(
        f"{base}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    started, first, count = time.monotonic(), 0.0, 0
    try:
        with urllib.request.urlopen(request, timeout=600) as response:
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                count += 1
                first = first or time.monotonic() - started
    except OSError:
        return None
    return Answer(first, time.monotonic() - started, count) if count else None


def figures(answers: list[Answer], seconds: float) -> dict[str, Any]:
    tokens = sum(one.tokens for one in answers)
    per_token = [(one.whole - one.first) / (one.tokens - 1) for one in answers if one.tokens > 1]
    return {
        "completed": len(answers),
        "seconds": round(seconds, 3),
        "output_tokens_per_s": round(tokens / seconds, 2),
        "requests_per_s": round(len(answers) / seconds, 3),
        "ttft_ms": percentiles([one.first for one in answers]),
        "tpot_ms": percentiles(per_token),
        "e2e_ms": percentiles([one.whole for one in answers]),
    }


def percentiles(seconds: list[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    return {f"p{p}": round(1000 * cuts[p - 1], 3) for p in (50, 90, 99)}


if __name__ == "__main__":
    run_worker(work)
