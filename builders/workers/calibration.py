"""Prepare calibration samples once for every variant: choose, render, tokenize.

Params: ``data`` (kind and its fields), ``samples``, ``sequence_length`` (tokens), ``seed``, ``chat_template``.
Inputs: ``checkpoint`` (for its tokenizer), ``data`` (the folder of a file).
Output: ``calibration.json``, a summary, and ``calibration.jsonl``, one ``{"text": ..., "input_ids": [...]}`` of exactly
``sequence_length`` tokens a line (of a whole conversation, cut to that length, with ``chat_template``). ``text`` is
what the tokens say: a window that begins or ends inside a character has U+FFFD there.
"""

from __future__ import annotations

import difflib
import itertools
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pydoc_corpus
from worker_api import Events, Job, Refusal, run_worker


def work(job: Job, events: Events) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.inputs["checkpoint"])
    samples, length = int(job.params["samples"]), int(job.params["sequence_length"])
    choose = _conversations if job.params["chat_template"] else _windows
    events.progress(0, samples, "samples")
    found = list(itertools.islice(choose(_rows(job), tokenizer, length), samples))
    if len(found) < samples:
        raise Refusal(
            f"calibration.samples: {samples} asked for, the data holds {len(found)} of {length} tokens",
            "Ask for fewer samples or shorter ones (calibration.sequence_length), or give more text",
        )
    texts = tokenizer.batch_decode(found)
    lines = [json.dumps({"text": text, "input_ids": ids}) for text, ids in zip(texts, found, strict=True)]
    (job.output / "calibration.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lengths = [len(ids) for ids in found]
    tokens = sum(lengths)
    summary = {
        "samples": len(found),
        "tokens": tokens,
        "shortest": min(lengths),
        "longest": max(lengths),
        "data": job.params["data"],
    }
    (job.output / "calibration.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    events.metric("calibration_tokens", tokens)


def _rows(job: Job) -> Iterator[Any]:
    """Texts, or lists of chat messages, each once, in the seed's order.

    With ``chat_template`` and no other ``field`` named than the default, ``messages`` are taken where there are any.
    """
    data, rng = job.params["data"], random.Random(job.params["seed"])
    field = data.get("field")
    names = ("messages", field) if job.params["chat_template"] and field == "text" else (field,)
    if data["kind"] == "pydoc":
        yield from _shuffled(pydoc_corpus.calibration_paragraphs(), rng)
        yield from _shuffled(pydoc_corpus.docstring_paragraphs(), rng)  # seconds to gather: only when wanted
    elif data["kind"] == "hub":
        from datasets import load_dataset

        dataset = load_dataset(data["dataset"], data["config"], revision=data["revision"], split=data["split"])
        yield from (_field(dataset[index], names) for index in _shuffled(list(range(len(dataset))), rng))
    elif data["kind"] == "parquet":
        yield from _shuffled(_column(job.inputs["data"] / data["file"], names), rng)
    else:
        text = _utf8(job.inputs["data"] / data["file"])
        if data["kind"] == "text":
            parts = [paragraph.strip() for paragraph in text.split("\n\n") if paragraph.strip()]
            yield from _shuffled(parts, rng)
        else:
            lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
            rows = [_field(_json(line, number, data["file"]), names) for number, line in lines]
            yield from _shuffled(rows, rng)


def _shuffled(rows: list[Any], rng: random.Random) -> list[Any]:
    return rng.sample(rows, len(rows))


def _column(file: Path, names: tuple[str, ...]) -> list[Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
        for name in names:
            if name in table.schema_arrow.names:
                return table.read(columns=[name]).column(name).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise Refusal(f"calibration.data.file: {file.name} is not a Parquet file ({error})") from None
    raise _no_field(names[-1], table.schema_arrow.names)


def _utf8(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"calibration.data.file: {file.name} is not UTF-8 (byte {error.start})"
        raise Refusal(message, "Convert it to UTF-8") from None


def _json(line: str, number: int, name: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise Refusal(
            f"calibration.data.file: {name}:{number} is not JSON", "One JSON object a line is wanted"
        ) from None


def _field(row: Any, names: tuple[str, ...]) -> Any:
    """The first of ``names`` that the row has."""
    there = row if isinstance(row, dict) else {}
    for name in names:
        if name in there:
            return there[name]
    raise _no_field(names[-1], there)


def _no_field(name: str, there: Iterable[str]) -> Refusal:
    names = sorted(there)
    close = difflib.get_close_matches(name, names, n=1)
    return Refusal(
        f"calibration.data.field: no {name!r} in the data; fields there: {', '.join(names) or 'none'}",
        f"Did you mean {close[0]!r}?" if close else "Name one of them",
    )


def _windows(rows: Iterator[Any], tokenizer: Any, length: int) -> Iterator[list[int]]:
    """Texts joined in their order and cut into windows of ``length`` tokens."""
    pending: list[int] = []
    for row in rows:
        if not isinstance(row, str):
            raise Refusal(
                f"calibration.data.field: holds a {type(row).__name__}, wanted text",
                "Set calibration.chat_template: true if these are chat messages",
            )
        pending += tokenizer(row + "\n\n", add_special_tokens=False)["input_ids"]
        while len(pending) >= length:
            yield pending[:length]
            pending = pending[length:]


def _conversations(rows: Iterator[Any], tokenizer: Any, length: int) -> Iterator[list[int]]:
    """Each row rendered by the chat template and cut to ``length`` tokens. A plain text is what the user said."""
    if not tokenizer.chat_template:
        raise Refusal("calibration.chat_template: the checkpoint has no chat template", "Set it to false")
    for row in rows:
        messages = [{"role": "user", "content": row}] if isinstance(row, str) else row
        if not _are_messages(messages):
            raise Refusal(
                f"calibration.data.field: {json.dumps(row, default=str)[:120]} is neither text nor chat messages",
                'Chat messages are a list of {"role": ..., "content": ...}',
            )
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        yield tokenizer(text, add_special_tokens=False)["input_ids"][:length]


def _are_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in value)
    )


if __name__ == "__main__":
    run_worker(work)
