"""Prepare calibration samples once for every variant: choose, render, tokenize.

Params: ``data`` (kind and its fields), ``samples``, ``sequence_length`` (tokens), ``seed``, ``chat_template``.
Inputs: ``checkpoint`` (for its tokenizer), ``data`` (the folder of a file).
Output: ``calibration.jsonl``, one ``{"input_ids": [...]}`` of exactly ``sequence_length`` tokens a line (of a whole
conversation, cut to that length, with ``chat_template``), and ``calibration.json``, a summary.
"""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pydoc_corpus
from worker_api import Events, Job, Refusal, run_worker


def work(job: Job, events: Events) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.inputs["checkpoint"])
    samples, length = int(job.params["samples"]), int(job.params["sequence_length"])
    shuffle = random.Random(job.params["seed"]).shuffle
    choose = _conversations if job.params["chat_template"] else _windows
    rows = list(_rows(job))
    shuffle(rows)
    found = choose(rows, tokenizer, samples, length)
    if len(found) < samples and job.params["data"]["kind"] == "pydoc":
        more = pydoc_corpus.docstring_paragraphs()
        shuffle(more)
        found = choose(rows + more, tokenizer, samples, length)
    if len(found) < samples:
        raise Refusal(
            f"calibration.samples: {samples} asked for, the data holds {len(found)} of {length} tokens",
            "Ask for fewer samples or shorter ones (calibration.sequence_length), or give more text",
        )
    lines = [json.dumps({"input_ids": ids}) for ids in found]
    (job.output / "calibration.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokens = sum(map(len, found))
    summary = {"samples": len(found), "tokens": tokens, "shortest": min(map(len, found)), "longest": max(map(len, found))}
    (job.output / "calibration.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    events.metric("calibration_tokens", tokens)


def _rows(job: Job) -> Iterable[Any]:
    """Texts, or lists of chat messages."""
    data = job.params["data"]
    if data["kind"] == "pydoc":
        return pydoc_corpus.calibration_paragraphs()
    if data["kind"] == "hub":
        from datasets import load_dataset

        dataset = load_dataset(data["dataset"], data["config"], revision=data["revision"], split=data["split"])
        return (_field(row, data["field"]) for row in dataset)
    file = job.inputs["data"] / data["file"]
    if data["kind"] == "parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(file).to_pylist()
        return (_field(row, data["field"]) for row in table)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(f"calibration.data.file: {file.name} is not UTF-8 (byte {error.start})", "Convert it to UTF-8") from None
    if data["kind"] == "text":
        return [paragraph.strip() for paragraph in text.split("\n\n") if paragraph.strip()]
    return (_field(_json(line, number, file), data["field"]) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _json(line: str, number: int, file: Path) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise Refusal(f"calibration.data.file: {file.name}:{number} is not JSON", "One JSON object a line is wanted") from None


def _field(row: Any, name: str) -> Any:
    if not isinstance(row, dict) or name not in row:
        there = sorted(map(str, row)) if isinstance(row, dict) else []
        close = difflib.get_close_matches(name, there, n=1)
        raise Refusal(
            f"calibration.data.field: no {name!r} in the data; fields there: {', '.join(there) or 'none'}",
            f"Did you mean {close[0]!r}?" if close else "",
        )
    return row[name]


def _windows(rows: list[Any], tokenizer: Any, samples: int, length: int) -> list[list[int]]:
    """Texts joined in their shuffled order and cut into windows of ``length`` tokens."""
    if rows and not isinstance(rows[0], str):
        raise Refusal(
            f"calibration.data.field: holds a {type(rows[0]).__name__}, wanted text",
            "Set calibration.chat_template: true if these are chat messages",
        )
    found: list[list[int]] = []
    pending: list[int] = []
    for row in rows:
        pending += tokenizer(row + "\n\n", add_special_tokens=False)["input_ids"]
        while len(pending) >= length and len(found) < samples:
            found.append(pending[:length])
            pending = pending[length:]
        if len(found) == samples:
            break
    return found


def _conversations(rows: list[Any], tokenizer: Any, samples: int, length: int) -> list[list[int]]:
    """Each row rendered by the chat template and cut to ``length`` tokens. A plain text is what the user said."""
    if not tokenizer.chat_template:
        raise Refusal("calibration.chat_template: the checkpoint has no chat template", "Set it to false")
    found: list[list[int]] = []
    for row in rows[: 4 * samples]:
        messages = [{"role": "user", "content": row}] if isinstance(row, str) else row
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][:length]
        if len(ids) >= 8 and len(found) < samples:
            found.append(ids)
    return found


if __name__ == "__main__":
    run_worker(work)
