"""Names of tasks, known without lm-eval."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.task_names import EMBEDDED, SHIPPED, known_tasks, unknown_tasks


def test_the_shipped_list_is_sorted_and_without_repeats() -> None:
    names = SHIPPED.read_text(encoding="utf-8").splitlines()
    assert names == sorted(set(names))
    assert {"hellaswag", "mmlu", "gsm8k", "arc_challenge"} <= set(names)


def test_embedded_tasks_take_no_name_of_lm_eval() -> None:
    assert not set(EMBEDDED) & set(SHIPPED.read_text(encoding="utf-8").splitlines())


def test_unknown_names_come_back_in_their_order() -> None:
    assert unknown_tasks(["zzz", "hellaswag", "pydoc_word", "aaa"]) == ["zzz", "aaa"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("task: plain\ndoc_to_text: !function utils.text\n", {"plain"}),
        ("\"task\": 'quoted'\n", {"quoted"}),
        ("task: spaced  # why\n", {"spaced"}),
        ("group: all_of_it\ntask: [one, two]\n", {"all_of_it"}),
        ("group: nested\ntask:\n  - task: inner\n    num_fewshot: 0\n", {"nested"}),
        ("task: tagged\ntag: mine\n", {"tagged", "mine"}),
        ("task: tagged\ntag:\n- mine\n- ours\n", {"tagged", "mine", "ours"}),
        ("task: t\ninclude: _base\n", {"t", "inherited"}),
        ("class: !function task.Task\ntask: python_task\n", {"python_task"}),
        ("dataset_path: json\n", set()),
        ("task: [unclosed\n", set()),
        ("- a list\n", set()),
        ("include: own.yaml\ntask: cycle\n", {"cycle"}),
    ],
)
def test_names_in_the_users_files(tmp_path: Path, text: str, names: set[str]) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "own.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "deeper" / "_base").write_text("tag: inherited\n", encoding="utf-8")
    assert known_tasks(tmp_path) - known_tasks() == names
