"""Which documents an evaluation takes, and which task files it reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / room / "workers") for room in ("builders", "evaluation")]  # as worker processes find them
import lm_eval_run  # noqa: E402
from worker_api import Job, Refusal  # noqa: E402

sizes_of_tasks = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 300), min_size=1)


@given(sizes_of_tasks, st.integers(1, 2000), st.integers(0, 9))
def test_budget_is_spent_and_no_document_twice(sizes: dict[str, int], budget: int, seed: int) -> None:
    chosen = lm_eval_run.choose_documents(sizes, budget, seed)
    assert sum(map(len, chosen.values())) == max(min(budget, sum(sizes.values())), len(sizes))
    for name, places in chosen.items():
        assert 1 <= len(places) == len(set(places))
        assert set(places) <= set(range(sizes[name]))
    assert chosen == lm_eval_run.choose_documents(dict(reversed(sizes.items())), budget, seed)


def test_tasks_share_in_proportion_to_their_size() -> None:
    chosen = lm_eval_run.choose_documents({"big": 900, "small": 100}, 100, seed=0)
    assert {name: len(places) for name, places in chosen.items()} == {"big": 90, "small": 10}


def test_documents_are_drawn_not_taken_from_the_front() -> None:
    chosen = lm_eval_run.choose_documents({"task": 1000}, 100, seed=0)["task"]
    assert max(chosen) > 900
    assert chosen != lm_eval_run.choose_documents({"task": 1000}, 100, seed=1)["task"]


def test_a_task_without_documents_is_refused() -> None:
    with pytest.raises(Refusal, match="empty has no documents"):
        lm_eval_run.choose_documents({"full": 5, "empty": 0}, 5, seed=0)


def test_task_files_find_their_data_wherever_the_artifact_lies(tmp_path: Path) -> None:
    embedded, include = tmp_path / "artifact", tmp_path / "include"
    embedded.mkdir()
    include.mkdir()
    (embedded / "pydoc_word.yaml").write_text("data_files:\n  test: pydoc_word.jsonl\n", encoding="utf-8")
    (include / "own.yaml").write_text("task: own\n", encoding="utf-8")
    inputs = {"tasks": embedded, "include": include}
    job = Job("evaluate", {}, inputs, tmp_path / "out", tmp_path / "scratch", threads=1)
    folder = lm_eval_run._task_folder(job)
    assert f'test: "{embedded / "pydoc_word.jsonl"}"' in (folder / "pydoc_word.yaml").read_text(encoding="utf-8")
    assert (folder / "own.yaml").is_file()
    assert str(embedded) not in (embedded / "pydoc_word.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("score", "likelihoods", "message"),
    [
        (float("nan"), [-1.0], "scored nan"),
        (1.0, [-1.0, float("nan")], "log-likelihoods"),
        (1.0, [float("-inf")], "log-likelihoods"),
        ((0.5, 3), [-1.0], "tuple per document"),
        (None, [-1.0], "NoneType per document"),
    ],
)
def test_what_cannot_be_compared_is_refused(score: object, likelihoods: list[float], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        lm_eval_run._lines("task", "acc", [_sample(acc=score, resps=[[(value, False)] for value in likelihoods])])


def test_a_missing_metric_is_refused() -> None:
    with pytest.raises(Refusal, match="no 'f1' per document"):
        lm_eval_run._lines("task", "f1", [_sample(acc=1.0, resps=[])])


def test_lines_of_generated_answers_have_no_likelihoods() -> None:
    (line,) = lm_eval_run._lines("task", "exact_match", [_sample(exact_match=1, resps=[["Paris"]])])
    assert (line["score"], line["loglikelihoods"]) == (1.0, None)


def test_only_the_first_filter_counts() -> None:
    samples = [_sample(acc=1.0, resps=[]), {**_sample(acc=0.0, resps=[]), "filter": "other"}]
    assert [line["score"] for line in lm_eval_run._lines("task", "acc", samples)] == [1.0]


class _Task:
    def __init__(self, higher: dict[str, bool]) -> None:
        self.higher = higher

    def aggregation(self) -> dict[str, object]:
        return dict.fromkeys(self.higher)

    def higher_is_better(self) -> dict[str, bool]:
        return self.higher


def test_the_first_metric_is_the_primary_one() -> None:
    assert lm_eval_run._primary_metric("task", _Task({"acc_norm": True, "acc": True})) == "acc_norm"


@pytest.mark.parametrize(("higher", "message"), [({}, "no metric"), ({"word_perplexity": False}, "less is better")])
def test_tasks_that_the_gate_would_misread_are_refused(higher: dict[str, bool], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        lm_eval_run._primary_metric("task", _Task(higher))


def _sample(resps: list[object], **scores: object) -> dict[str, object]:
    return {"filter": "none", "doc_hash": "d" * 64, "prompt_hash": "p" * 64, "resps": resps, **scores}
