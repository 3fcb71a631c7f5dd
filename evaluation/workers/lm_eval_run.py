"""Evaluate one checkpoint with lm-eval and keep the outcome of every document.

Params: ``tasks``, ``documents`` (in all), ``seed``, ``num_fewshot``, ``apply_chat_template``, ``system_prompt``,
``batch_size``, ``offline``; ``server``, the command of an OpenAI-compatible server to evaluate through, if any.
Inputs: ``checkpoint`` (with ``server``: for its tokenizer); ``tasks`` (embedded task files) and ``include`` (the
user's), if any; whatever the command names in braces.

Output, the same bytes for the same inputs: ``samples.jsonl``, one line a document, sorted by task and document hash
(``{"task", "doc_hash", "prompt_hash", "metric", "score", "loglikelihoods"}``), and ``results.json``: versions, what it
was computed with, for each task its metric, mean and number of documents, and lm-eval's own figures.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import random
import shutil
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from worker_api import Events, Job, Refusal, run_worker

LM_EVAL_PARTS = ("results", "versions", "n-shot", "n-samples", "higher_is_better")
"""What is kept of lm-eval's report. The rest holds dates, paths and the machine, and would differ at every run."""


def work(job: Job, events: Events) -> None:
    params = job.params
    if params["offline"]:
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    events.log("starting lm-eval")
    import lm_eval
    import torch
    import transformers
    from lm_eval.tasks import TaskManager

    torch.set_num_threads(job.threads)
    folder = _task_folder(job)
    ours = [name for name in params["tasks"] if (folder / f"{name}.yaml").is_file()]
    manager = TaskManager(include_path=str(folder), include_defaults=ours != params["tasks"])
    tasks = _load_tasks(manager, params["tasks"], offline=params["offline"])
    metrics = {name: _primary_metric(name, task) for name, task in tasks.items()}
    sizes = {name: len(task.eval_docs) for name, task in tasks.items()}
    chosen = choose_documents(sizes, params["documents"], params["seed"])
    _report_progress(events)
    started = time.monotonic()
    with _model(job, events, tasks) as (model, compute):
        events.log(f"evaluating {sum(map(len, chosen.values()))} documents by {compute}")
        results = lm_eval.simple_evaluate(
            model=model,
            tasks=[tasks[name] for name in chosen],
            samples=chosen,
            num_fewshot=params["num_fewshot"],
            apply_chat_template=params["apply_chat_template"],
            system_instruction=params["system_prompt"],
            task_manager=manager,
            log_samples=True,
            bootstrap_iters=0,
        )
    if results is None:
        raise RuntimeError("lm-eval gave no results")
    lines = [line for name in chosen for line in _lines(name, metrics[name], results["samples"][name])]
    lines.sort(key=lambda line: (line["task"], line["doc_hash"], line["prompt_hash"]))
    (job.output / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    summary = {
        "versions": {
            "lm_eval": lm_eval.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        },
        "compute": compute,
        "tasks": {name: _task_summary([line for line in lines if line["task"] == name]) for name in sorted(chosen)},
        "lm_eval": {part: results[part] for part in LM_EVAL_PARTS},
    }
    (job.output / "results.json").write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    events.metric("documents", len(lines))
    events.metric("documents_per_second", round(len(lines) / (time.monotonic() - started), 3))


def choose_documents(sizes: dict[str, int], budget: int, seed: int) -> dict[str, list[int]]:
    """Positions of the documents to use, by task: a seeded draw, each task in proportion to its size.

    Seats are given by largest remainder, at least one a task. All documents there are, if the budget allows.
    """
    empty = [name for name, size in sizes.items() if size == 0]
    if empty:
        raise Refusal(f"evaluation.tasks: {empty[0]} has no documents", "Name another task")
    total = sum(sizes.values())
    budget = max(min(budget, total), len(sizes))
    exact = {name: size * budget / total for name, size in sizes.items()}
    seats = {name: max(1, math.floor(share)) for name, share in exact.items()}

    def excess(name: str) -> tuple[float, str]:
        return (seats[name] - exact[name], name)

    while sum(seats.values()) < budget:
        seats[min((name for name in seats if seats[name] < sizes[name]), key=excess)] += 1
    while sum(seats.values()) > budget:  # small tasks were rounded up to one
        seats[max((name for name in seats if seats[name] > 1), key=excess)] -= 1
    return {
        name: sorted(random.Random(f"{seed}:{name}").sample(range(sizes[name]), seats[name])) for name in sorted(sizes)
    }


def _task_folder(job: Job) -> Path:
    """The user's and the embedded task files in one folder, the embedded ones knowing where their data lies."""
    folder = job.scratch / "tasks"
    shutil.rmtree(folder, ignore_errors=True)
    if "include" in job.inputs:
        shutil.copytree(job.inputs["include"], folder)
    folder.mkdir(parents=True, exist_ok=True)
    if embedded := job.inputs.get("tasks"):
        for path in embedded.glob("*.yaml"):
            text = path.read_text(encoding="utf-8")
            data = json.dumps(str(embedded / f"{path.stem}.jsonl"))
            (folder / path.name).write_text(text.replace(f"test: {path.stem}.jsonl", f"test: {data}"), encoding="utf-8")
    return folder


def _load_tasks(manager: Any, names: list[str], *, offline: bool) -> dict[str, Any]:
    """Every task by name, groups taken apart."""
    known = set(manager.all_tasks)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3)
            raise Refusal(f"evaluation.tasks: lm-eval knows no {name!r}", f"Near: {', '.join(close)}" if close else "")
    try:
        return dict(manager.load(names)["tasks"])
    except (ConnectionError, FileNotFoundError) as error:  # what datasets raises for data it can't reach or find
        if not offline:
            raise
        message = f"evaluation.offline: data of {', '.join(names)} is not on this machine ({error})"
        raise Refusal(message, "Fetch it once with offline: false, or name tasks that need no network") from None


def _primary_metric(name: str, task: Any) -> str:
    """The first metric that the task itself lists. Higher must be better, or a drop would read as a gain."""
    metrics = list(task.aggregation())
    if not metrics:
        raise Refusal(f"evaluation.tasks: {name} has no metric per document", "Name a task that has one")
    if not task.higher_is_better().get(metrics[0], True):
        raise Refusal(
            f"evaluation.tasks: of {name}'s metric {metrics[0]!r} less is better, and the gate measures drops",
            "Name a task that is scored by accuracy or the like",
        )
    return str(metrics[0])


def _compute(checkpoint: Path) -> tuple[str, str]:
    """Device and type to compute in: the checkpoint's own type wherever there are instructions for it, as it is served.

    A processor without bfloat16 instructions emulates them, many times slower than it computes in 32 bits.
    """
    import torch
    from transformers import AutoConfig

    stored = AutoConfig.from_pretrained(checkpoint).dtype or torch.float32
    if torch.accelerator.is_available():
        return torch.accelerator.current_accelerator().type, _name(stored)
    able = torch.cpu.get_capabilities()
    native = any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return "cpu", _name(stored if stored is torch.bfloat16 and native else torch.float32)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


@contextlib.contextmanager
def _model(job: Job, events: Events, tasks: dict[str, Any]) -> Generator[tuple[Any, dict[str, str]]]:
    """lm-eval's model and what it computes with: transformers here, or a server started for as long as it is needed."""
    checkpoint = job.inputs["checkpoint"]
    if command := job.params.get("server"):
        with _served(job, events, tasks, command) as model:
            yield model, {"server": "vllm" if "vllm.entrypoints.openai.api_server" in command else command[0]}
        return
    from lm_eval.models import huggingface

    device, dtype = _compute(checkpoint)
    model = huggingface.HFLM(
        pretrained=str(checkpoint),
        device=device,
        dtype=dtype,
        softmax_dtype="float32",  # bfloat16 has 8 bits: likelihoods of whole sentences would tie
        batch_size=job.params["batch_size"],
    )
    yield model, {"device": device, "dtype": dtype}


@contextlib.contextmanager
def _served(job: Job, events: Events, tasks: dict[str, Any], command: list[str]) -> Generator[Any]:
    import openai_server
    from lm_eval.models import openai_completions

    folders = {f"{{{name}}}": str(path) for name, path in job.inputs.items()}
    folders |= {f"{{python:{name}}}": python for name, python in job.tools.items()}
    words = [openai_server.filled(word, folders) for word in command]
    with openai_server.served(words, job.scratch / "server.log", events) as (base, name):
        scored = [task_name for task_name, task in tasks.items() if task.OUTPUT_TYPE != "generate_until"]
        if scored and not openai_server.scores_prompts(base, name):
            raise Refusal(
                f"evaluation.tasks: {', '.join(scored)} compare likelihoods, and {command[0]} gives no "
                "log-probabilities of the prompt",
                "Name tasks that are answered in words (generate_until, such as gsm8k) for this target",
            )
        yield openai_completions.LocalCompletionsAPI(
            model=name,
            base_url=f"{base}/completions",
            tokenizer=str(job.inputs["checkpoint"]),
            tokenizer_backend="huggingface",
            batch_size=1,
            num_concurrent=job.params["batch_size"],
            max_retries=2,
        )


def _report_progress(events: Events) -> None:
    """lm-eval shows its progress with tqdm; tell it in events."""
    from lm_eval.models import api_models, huggingface

    class Reporting(huggingface.tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            before, result = self.n, super().update(n)
            if self.total and self.n * 100 // self.total > before * 100 // self.total:
                events.progress(self.n, self.total, "requests")
            return result

    huggingface.tqdm = api_models.tqdm = Reporting


def _lines(name: str, metric: str, samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len({sample["filter"] for sample in samples}) > 1:
        first = samples[0]["filter"]
        samples = [sample for sample in samples if sample["filter"] == first]
    lines: list[dict[str, Any]] = []
    for sample in samples:
        if metric not in sample:
            raise Refusal(
                f"evaluation.tasks: {name} gives no {metric!r} per document", "Name a task with per-document metrics"
            )
        if not isinstance(sample[metric], (int, float)):
            kind = type(sample[metric]).__name__
            message = f"evaluation.tasks: {name}'s {metric!r} is a {kind} per document, scored over all of them at once"
            raise Refusal(message, "Name a task with one number per document")
        score = float(sample[metric])
        likelihoods = [response[0][0] for response in sample["resps"] if isinstance(response[0], (list, tuple))]
        if not all(map(math.isfinite, [score, *likelihoods])):
            found = f"{name}: document {sample['doc_hash'][:12]} scored {score} with log-likelihoods {likelihoods}"
            raise Refusal(found, "The checkpoint gives no finite logits")
        lines.append(
            {
                "task": name,
                "doc_hash": sample["doc_hash"],
                "prompt_hash": sample["prompt_hash"],
                "metric": metric,
                "score": score,
                "loglikelihoods": likelihoods or None,
            }
        )
    return lines


def _task_summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    scores = [line["score"] for line in lines]
    return {"metric": lines[0]["metric"], "mean": sum(scores) / len(scores), "documents": len(scores)}


if __name__ == "__main__":
    run_worker(work)
