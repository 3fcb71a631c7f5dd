"""The embedded tasks: multiple-choice documents made from CPython's own reference, as lm-eval task files.

``pydoc_next``   which of four sentences comes next (the true one, or one from another paragraph)
``pydoc_word``   which of four equally common words comes next (one forward pass a document: cheap)

Params: ``tasks`` (which of them), ``seed``. Output: ``<task>.yaml`` and ``<task>.jsonl`` for each. The data file is
named without a folder, since artifacts move; evaluation/workers/lm_eval_run.py puts the folder in.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pydoc_corpus
from worker_api import Events, Job, Refusal, run_worker

CHOICES = 4
WORDS = (6, 24)
"""Shortest and longest sentence used: enough to go by, and cheap to evaluate."""
FEWEST_BEFORE = 4
"""Words before the one to tell."""
CUTS = 3
"""Most documents made of one sentence: more of them would ask much the same."""
NEIGHBOURS = 24
"""Words of like frequency that the wrong choices are drawn from."""

TASK_FILE = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {name}.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_target: answer
doc_to_choice: choices
target_delimiter: " "
metric_list:
  - metric: {metric}
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


def work(job: Job, _events: Events) -> None:
    makers = {"pydoc_next": (next_sentence_documents, "acc_norm"), "pydoc_word": (word_documents, "acc")}
    for name in job.params["tasks"]:
        if name not in makers:
            raise Refusal(f"evaluation.tasks: no embedded task {name!r}", f"There are {', '.join(makers)}")
        make, metric = makers[name]
        documents = make(job.params["seed"])
        lines = [json.dumps(document, ensure_ascii=False) for document in documents]
        (job.output / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        task_file = TASK_FILE.format(name=name, metric=metric)
        (job.output / f"{name}.yaml").write_text(task_file, encoding="utf-8")


def next_sentence_documents(seed: int) -> list[dict[str, Any]]:
    """``{context, choices, answer}``: one document a pair of neighbouring sentences."""
    paragraphs = [pydoc_corpus.sentences(paragraph) for paragraph in pydoc_corpus.evaluation_paragraphs()]
    pool = [(index, sentence) for index, parts in enumerate(paragraphs) for sentence in parts if _usable(sentence)]
    documents: list[dict[str, Any]] = []
    for index, parts in enumerate(paragraphs):
        for context, following in zip(parts, parts[1:]):
            if not (_usable(context) and _usable(following)):
                continue
            others = [sentence for other, sentence in pool if other != index and sentence != following]
            # Wrong choices of the right one's length: otherwise length alone tells much of the answer.
            others.sort(key=lambda sentence: (abs(len(sentence) - len(following)), sentence))
            rng = random.Random(f"{seed}:{context}:{following}")
            choices = [following, *rng.sample(others[:40], CHOICES - 1)]
            rng.shuffle(choices)
            documents.append({"context": context, "choices": choices, "answer": choices.index(following)})
    return _distinct(documents)


def word_documents(seed: int) -> list[dict[str, Any]]:
    """``{context, choices, answer}``: up to ``CUTS`` documents a sentence, each cut before another of its words.

    The wrong words are as common in the corpus as the right one: otherwise frequency alone would tell.
    """
    parts = [part for text in pydoc_corpus.evaluation_paragraphs() for part in pydoc_corpus.sentences(text)]
    counts = Counter(word for part in parts for word in part.split() if _plain(word))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    rank = {word: place for place, word in enumerate(ranked)}
    documents: list[dict[str, Any]] = []
    for part in parts:
        words = part.split()
        places = [at for at in range(FEWEST_BEFORE, len(words)) if _plain(words[at]) and counts[words[at]] > 1]
        if not _usable(part) or not places:
            continue
        rng = random.Random(f"{seed}:{part}")
        for at in sorted(rng.sample(places, min(CUTS, len(places)))):
            first = max(0, min(rank[words[at]] - NEIGHBOURS // 2, len(ranked) - NEIGHBOURS))
            others = [word for word in ranked[first : first + NEIGHBOURS] if word != words[at]]
            choices = [words[at], *rng.sample(others, CHOICES - 1)]
            rng.shuffle(choices)
            documents.append({"context": " ".join(words[:at]), "choices": choices, "answer": choices.index(words[at])})
    return _distinct(documents)


def _usable(sentence: str) -> bool:
    return WORDS[0] <= len(sentence.split()) <= WORDS[1]


def _plain(word: str) -> bool:
    return word.isascii() and word.isalpha() and word.islower()


def _distinct(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without repeats of the same right answer in the same context."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for document in documents:
        seen.setdefault((document["context"], document["choices"][document["answer"]]), document)
    return list(seen.values())


if __name__ == "__main__":
    run_worker(work)
