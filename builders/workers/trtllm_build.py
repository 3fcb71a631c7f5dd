"""Build an engine with ``trtllm-build``, and write down what it was built on, because the engine does not say.

Runs under TensorRT-LLM's own interpreter. Params: ``arguments`` (options without directories), ``timing_cache`` (names
of the options for it), ``plugin_types`` (options to set to the checkpoint's type), ``tensorrt_llm`` (release wanted),
``sm`` (compute capability times ten wanted), ``ranks``. Inputs: ``checkpoint``.
Output: ``engine/`` (``config.json``, ``rank{N}.engine``), ``hardware.json`` (GPU, driver, versions, command).

The timing cache, one a GPU and TensorRT version, is kept under ``$ENGINEWORKS_HOME/timing-cache`` and replaced whole.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_facts
from worker_api import Events, Job, Refusal, ToolFailed, run_worker

ERROR = re.compile(r"\[E\]|\bError\b|\berror:|\bERROR\b|Exception|FAILED|Assertion")
STEPS = ("Build TensorRT engine", "Total time of building", "Serializing engine", "Engine serialized")
KNOWN = (
    (re.compile(r"CUDA out of memory|OutOfMemory|out of memory", re.IGNORECASE), "out_of_memory",
     "the GPU ran out of memory while building", "Lower engine.options max_batch_size, max_num_tokens or max_seq_len"),
    (re.compile(r"No space left on device"), "disk_full", "the disk is full", "Free space and run again"),
    (re.compile(r"unrecognized arguments: (?P<it>.*)"), "bad_input", "trtllm-build does not know {it}",
     "The installed release differs from the target card's tensorrt_llm"),
    (re.compile(r"invalid choice: (?P<it>.*)"), "bad_input", "trtllm-build: invalid choice {it}",
     "The installed release differs from the target card's tensorrt_llm"),
    (re.compile(r"Unsupported architecture|architecture.*not supported", re.IGNORECASE), "bad_input",
     "this release does not build this architecture", "Use a target with another tensorrt_llm or runtime"),
    (re.compile(r"could not find any implementation for node (?P<it>\S+)", re.IGNORECASE), "tool",
     "TensorRT found no kernel for {it} on this GPU", "Another scheme, or more workspace"),
)  # fmt: skip
"""What a log line means: pattern, cause, message, hint. ``{it}`` is what the pattern caught."""


def work(job: Job, events: Events) -> None:
    gpu = _checked_gpu(job)
    version = _checked_version(str(job.params["tensorrt_llm"]))
    tensorrt = _version("tensorrt", "tensorrt-cu13", "tensorrt-cu12") or "unknown"
    cache = _cache_folder() / f"{re.sub(r'[^A-Za-z0-9]+', '-', gpu.name)}-trt{tensorrt}.cache"
    own_cache = job.scratch / "timing.cache"
    if cache.is_file():
        shutil.copyfile(cache, own_cache)
    command = [_program(), *_arguments(job, own_cache)]
    events.log(shlex.join(command))
    (job.output / "engine").mkdir(exist_ok=True)
    _run(command, events)
    _check_output(job)
    if own_cache.is_file():
        _replace(own_cache, cache)
    facts = {
        "gpu": gpu.name,
        "sm": gpu.sm,
        "driver": gpu.driver,
        "ranks": int(job.params["ranks"]),
        "tensorrt_llm": version,
        "tensorrt": tensorrt,
        "image": os.environ.get("ENGINEWORKS_IMAGE"),
        "command": [word.replace(str(job.inputs["checkpoint"]), "{checkpoint}").replace(str(job.output), "{output}")
                    .replace(str(own_cache), "{timing_cache}") for word in command[1:]],
    }  # fmt: skip
    (job.output / "hardware.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def _checked_gpu(job: Job) -> gpu_facts.Gpu:
    """The GPU it is built on. An engine runs on no other compute capability, so this is refused before building."""
    found = gpu_facts.gpus()
    if not found:
        raise Refusal("trtllm-build needs an NVIDIA GPU and nvidia-smi shows none", "Run on the target's work pool")
    if found[0].sm != job.params["sm"]:
        raise Refusal(
            f"the target is SM {job.params['sm']} and this machine has {found[0].name} (SM {found[0].sm}); "
            "an engine runs only on the compute capability it was built on",
            "Run on the target's work pool",
        )
    return found[0]


def _checked_version(wanted: str) -> str:
    version = _version("tensorrt-llm", "tensorrt_llm")
    if version is None:
        raise Refusal(
            f"{sys.executable} has no tensorrt-llm", "Name the right one in ENGINEWORKS_TOOLCHAIN_TENSORRT_LLM"
        )
    if version.split("+")[0] != wanted:
        raise Refusal(
            f"the target card says TensorRT-LLM {wanted} and {version} is installed; engines of one release are not "
            "loaded by another",
            "Use that release's container, or change tensorrt_llm on the card",
        )
    return version


def _version(*names: str) -> str | None:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _program() -> str:
    beside = Path(sys.executable).with_name("trtllm-build")
    found = str(beside) if beside.is_file() else shutil.which("trtllm-build")
    if found is None:
        raise Refusal("no trtllm-build beside the interpreter or on PATH", "Releases after 1.3 have none")
    return found


def _arguments(job: Job, own_cache: Path) -> list[str]:
    words = ["--checkpoint_dir", str(job.inputs["checkpoint"]), "--output_dir", str(job.output / "engine")]
    words += [str(word) for word in job.params["arguments"]]
    dtype = json.loads((job.inputs["checkpoint"] / "config.json").read_text(encoding="utf-8"))["dtype"]
    for name in job.params["plugin_types"]:
        words += [f"--{name}", dtype]
    for name in job.params["timing_cache"]:
        if name != "input_timing_cache" or own_cache.is_file():
            words += [f"--{name}", str(own_cache)]
    return words


def _run(command: list[str], events: Events) -> None:
    """Pass the log on; fail with the one line of it that says why."""
    suspects: list[str] = []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    for line in process.stdout:
        text = line.rstrip()
        print(text, flush=True)  # noqa: T201 - the stage's own log
        if any(step in text for step in STEPS):
            events.log(text[-200:])
        if ERROR.search(text) or any(pattern.search(text) for pattern, *_ in KNOWN):
            suspects.append(text)
    status = process.wait()
    if status == 0:
        return
    for line in suspects:
        for pattern, cause, message, hint in KNOWN:
            if match := pattern.search(line):
                said = message.format(it=match.groupdict().get("it", ""))
                raise ToolFailed(cause, said, hint)
    last = suspects[-1] if suspects else f"exit status {status}, and its log names no error"
    raise ToolFailed("tool", f"trtllm-build: {last[-500:]}")


def _check_output(job: Job) -> None:
    folder, ranks = job.output / "engine", int(job.params["ranks"])
    missing = [
        name for name in ("config.json", *(f"rank{n}.engine" for n in range(ranks))) if not (folder / name).is_file()
    ]
    if missing:
        raise Refusal(f"trtllm-build exited 0 and wrote no {', '.join(missing)}", "See its log")
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if str(config.get("version", "")).split("+")[0] != job.params["tensorrt_llm"]:
        raise Refusal(f"the engine says version {config.get('version')}, the card {job.params['tensorrt_llm']}")


def _cache_folder() -> Path:
    home = Path(os.environ.get("ENGINEWORKS_HOME", "~/.engineworks")).expanduser()
    folder = home / "timing-cache"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _replace(own: Path, shared: Path) -> None:
    new = shared.with_name(f".{shared.name}.{os.getpid()}")
    shutil.copyfile(own, new)
    new.replace(shared)


if __name__ == "__main__":
    run_worker(work)
