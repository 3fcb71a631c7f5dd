"""The embedded tasks: the same on every run, each document once, none calibrated on, no answer that tells itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WORKERS = [ROOT / "builders" / "workers", ROOT / "evaluation" / "workers"]
sys.path[:0] = map(str, WORKERS)  # as worker processes find them
import build_tasks  # noqa: E402
import pydoc_corpus  # noqa: E402

from evaluation.task_names import EMBEDDED  # noqa: E402

Document = dict[str, Any]
MAKERS: list[Callable[[int], list[Document]]] = [build_tasks.next_sentence_documents, build_tasks.word_documents]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
def documents(request: pytest.FixtureRequest) -> list[Document]:
    return request.param(0)


def test_each_document_is_there_once(documents: list[Document]) -> None:
    assert len({json.dumps(document) for document in documents}) == len(documents)
    asked = {(document["context"], document["choices"][document["answer"]]) for document in documents}
    assert len(asked) == len(documents)


def test_choices_are_different_and_one_is_right(documents: list[Document]) -> None:
    for document in documents:
        assert len(set(document["choices"])) == build_tasks.CHOICES
        assert document["answer"] in range(build_tasks.CHOICES)


def test_no_place_of_the_answer_is_favoured(documents: list[Document]) -> None:
    expected = len(documents) / build_tasks.CHOICES
    places = Counter(document["answer"] for document in documents)
    chi_square = sum((places[place] - expected) ** 2 / expected for place in range(build_tasks.CHOICES))
    assert chi_square < 16.3  # 99.9 % of fair draws, 3 degrees of freedom


def test_the_right_answer_is_what_was_written(documents: list[Document]) -> None:
    text = "\n".join(pydoc_corpus.evaluation_paragraphs())
    for document in documents:
        assert f"{document['context']} {document['choices'][document['answer']]}" in text


def test_length_does_not_tell_the_sentence() -> None:
    found = build_tasks.next_sentence_documents(0)
    longest = [max(d["choices"], key=len) == d["choices"][d["answer"]] for d in found]
    assert 0.18 < sum(longest) / len(longest) < 0.32  # of 422 fair draws all but one in 1,000


def test_frequency_does_not_tell_the_word() -> None:
    """Always taking the word that is most often right must not pay."""
    found = build_tasks.word_documents(0)
    answers = Counter(d["choices"][d["answer"]] for d in found)
    hits = sum(max(d["choices"], key=lambda word: answers[word]) == d["choices"][d["answer"]] for d in found)
    assert hits / len(found) < 0.5


def test_no_document_is_calibrated_on(documents: list[Document]) -> None:
    paragraphs = pydoc_corpus.calibration_paragraphs() + pydoc_corpus.docstring_paragraphs()
    calibrated = {sentence for paragraph in paragraphs for sentence in pydoc_corpus.sentences(paragraph)}
    enough = pydoc_corpus.FEWEST_WORDS
    asked = {document["context"] for document in documents if len(document["context"].split()) >= enough}
    assert not calibrated & asked


def test_there_are_thousands() -> None:
    assert sum(len(make(0)) for make in MAKERS) > 2500


@pytest.mark.parametrize("make", MAKERS)
def test_the_seed_decides(make: Callable[[int], list[Document]]) -> None:
    assert make(0) == make(0)
    assert make(0) != make(1)


def test_a_sentence_keeps_its_cuts_when_another_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No document hangs on its place in the list: most are the same after the first paragraph is gone."""
    before = {(d["context"], d["choices"][d["answer"]]) for d in build_tasks.word_documents(0)}
    rest = pydoc_corpus.evaluation_paragraphs()[1:]
    monkeypatch.setattr(pydoc_corpus, "evaluation_paragraphs", lambda: rest)
    after = {(d["context"], d["choices"][d["answer"]]) for d in build_tasks.word_documents(0)}
    assert len(after - before) < 0.02 * len(before)


def test_worker_writes_the_same_bytes_without_paths(tmp_path: Path) -> None:
    runs = [_run(tmp_path / name, list(EMBEDDED), hash_seed) for name, hash_seed in (("a", "1"), ("b", "2"))]
    assert [run.returncode for run in runs] == [0, 0]
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / name / "out").iterdir()} for name in "ab")
    assert first == second
    assert set(first) == {f"{name}.{kind}" for name in EMBEDDED for kind in ("yaml", "jsonl")}
    assert not any(str(tmp_path).encode() in content for content in first.values())


def test_worker_refuses_a_task_that_is_not_embedded(tmp_path: Path) -> None:
    assert _run(tmp_path, ["hellaswag"], "0").returncode == 2
    events = (tmp_path / "events.jsonl").read_text(encoding="utf-8")
    assert "no embedded task 'hellaswag'" in events
    assert "pydoc_next, pydoc_word" in events


def _run(folder: Path, tasks: list[str], hash_seed: str) -> subprocess.CompletedProcess[bytes]:
    (folder / "out").mkdir(parents=True)
    job = {
        "stage": "tasks",
        "params": {"tasks": tasks, "seed": 0},
        "inputs": {},
        "output": str(folder / "out"),
        "scratch": str(folder),
        "events": str(folder / "events.jsonl"),
        "threads": 1,
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(WORKERS[0]), "PYTHONHASHSEED": hash_seed}
    script = WORKERS[1] / "build_tasks.py"
    return subprocess.run([sys.executable, script, folder / "job.json"], env=environment, check=False)
