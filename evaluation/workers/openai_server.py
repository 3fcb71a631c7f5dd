"""Start an OpenAI-compatible server, wait until it really answers, and stop it with everything it started.

The server is in this worker's process group, so it dies with the worker however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

from worker_api import Events, Refusal

POLL_S = 0.5
PROMPT = "The capital of France is"
SERVER_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
"""vLLM: no telemetry; on a processor, GiB for keys and values (the default takes half the machine)."""


@contextlib.contextmanager
def served(command: list[str], log: Path, events: Events, *, timeout_s: float = 1800) -> Generator[tuple[str, str]]:
    """Yield the base URL (``http://127.0.0.1:PORT/v1``) and the model's name once a completion came back.

    ``{port}`` in the command is replaced by a free one. /health alone does not count: servers have answered it with 200
    and died at the first request.
    """
    program = _find(command[0])
    port = _free_port()
    words = [program, *(word.replace("{port}", str(port)) for word in command[1:])]
    events.log(f"starting {Path(command[0]).name} on port {port}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | SERVER_ENVIRONMENT
    with log.open("wb") as stream:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment
        )
    base = f"http://127.0.0.1:{port}/v1"
    try:
        yield base, _wait(process, base, log, timeout_s)
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        process.kill()
        process.wait()


def filled(word: str, folders: dict[str, str]) -> str:
    """A word of a command with the folders that it names in braces."""
    for name, folder in folders.items():
        word = word.replace(name, folder)
    return word


def complete(base: str, body: dict[str, Any], timeout_s: float = 600) -> dict[str, Any]:
    """POST to ``/completions``. Raises OSError when it does not answer with 200."""
    request = urllib.request.Request(
        f"{base}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        return json.loads(response.read())


def scores_prompts(base: str, model: str) -> bool:
    """Whether log-probabilities of the prompt come back (``echo`` with ``logprobs``).

    Some servers ignore ``echo`` and give the generated token's only: every choice of a task would then score alike.
    """
    body = {"model": model, "prompt": PROMPT, "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0}
    try:
        choice = complete(base, body)["choices"][0]
        given = (choice.get("logprobs") or {}).get("token_logprobs") or []
    except (OSError, KeyError, IndexError, ValueError):
        return False
    return sum(isinstance(value, (int, float)) for value in given) >= 3


def _wait(process: subprocess.Popen[bytes], base: str, log: Path, timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}: {_last_words(log)}")
        with contextlib.suppress(OSError, KeyError, IndexError):
            with urllib.request.urlopen(f"{base}/models", timeout=60) as response:
                model = str(json.loads(response.read())["data"][0]["id"])
            if complete(base, {"model": model, "prompt": PROMPT, "max_tokens": 1, "temperature": 0})["choices"]:
                return model
        if time.monotonic() > deadline:
            raise RuntimeError(f"the server gave no completion within {timeout_s:.0f} s: {_last_words(log)}")
        time.sleep(POLL_S)


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    wrong = [line for line in lines if "rror" in line]
    return (wrong or lines or ["it said nothing"])[-1][:500]


def _find(program: str) -> str:
    if "/" in program:
        return program
    setting = os.environ.get("ENGINEWORKS_TOOLCHAIN_TENSORRT_LLM", "")
    beside = Path(setting.removeprefix("system:")).with_name(program) if setting else None
    found = str(beside) if beside and beside.is_file() else shutil.which(program)
    if found is None:
        raise Refusal(f"no {program} on this machine", "Run where it is installed")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
