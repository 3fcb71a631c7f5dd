"""Convert a checkpoint with TensorRT-LLM's own script, under TensorRT-LLM's interpreter.

Params: ``program`` (path under TensorRT-LLM's folder), ``arguments`` (with ``{checkpoint}`` and ``{output}``),
``tensorrt_llm`` (release wanted). Inputs: ``checkpoint``. Output: a TensorRT-LLM checkpoint.
The folder is ``$ENGINEWORKS_TENSORRT_LLM_FOLDER``, else ``/app/tensorrt_llm`` as in NVIDIA's release container.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

from worker_api import Events, Job, Refusal, ToolFailed, run_worker

FOLDER = "ENGINEWORKS_TENSORRT_LLM_FOLDER"


def work(job: Job, events: Events) -> None:
    wanted = str(job.params["tensorrt_llm"])
    try:
        version = importlib.metadata.version("tensorrt-llm")
    except importlib.metadata.PackageNotFoundError:
        raise Refusal(f"{sys.executable} has no tensorrt-llm", "Run in NVIDIA's container") from None
    if version.split("+")[0] != wanted:
        raise Refusal(f"the target card says TensorRT-LLM {wanted} and {version} is installed", "Use that container")
    script = Path(os.environ.get(FOLDER, "/app/tensorrt_llm")) / str(job.params["program"])
    if not script.is_file():
        raise Refusal(f"no {script}", f"Set {FOLDER} to TensorRT-LLM's source folder of release {wanted}")
    places = {"{checkpoint}": str(job.inputs["checkpoint"]), "{output}": str(job.output)}
    arguments = [places.get(word, word) for word in job.params["arguments"]]
    events.log(" ".join([script.name, *job.params["arguments"]]))
    command = [sys.executable, str(script), *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    last = ""
    for line in process.stdout or ():
        print(line, end="", flush=True)  # noqa: T201 - the stage's own log
        last = line.strip() or last
    if process.wait() != 0:
        raise ToolFailed("tool", f"{script.name}: {last[-500:] or f'exit status {process.returncode}'}")


if __name__ == "__main__":
    run_worker(work)
