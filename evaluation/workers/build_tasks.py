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
from itertools import pairwise
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
NEIGHBOURS = {"sentences": 40, "words": 24}
"""How many of like length, or of like frequency, the wrong choices are drawn from."""

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
    homes: dict[str, set[int]] = {}
    for index, parts in enumerate(paragraphs):
        for sentence in filter(_usable, parts):
            homes.setdefault(sentence, set()).add(index)
    ranked = sorted(homes, key=lambda sentence: (len(sentence), sentence))
    rank = {sentence: place for place, sentence in enumerate(ranked)}
    documents: list[dict[str, Any]] = []
    for index, parts in enumerate(paragraphs):
        for context, following in pairwise(parts):
            if not (_usable(context) and _usable(following)):
                continue
            rng = random.Random(f"{seed}:{context}:{following}")
            near = _near(ranked, rank[following], NEIGHBOURS["sentences"], rng)
            others = [sentence for sentence in near if index not in homes[sentence]]
            documents.append(_document(context, following, rng.sample(others, CHOICES - 1), rng))
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
            near = _near(ranked, rank[words[at]], NEIGHBOURS["words"], rng)
            others = [word for word in near if word != words[at]]
            wrong = _draw(others, counts, rng)
            documents.append(_document(" ".join(words[:at]), words[at], wrong, rng))
    return _distinct(documents)


def _near(ranked: list[str], place: int, width: int, rng: random.Random) -> list[str]:
    """``width`` neighbours in rank, ``place`` anywhere among them: in their middle, it would be told by that."""
    first = place - rng.randrange(width)
    first = max(0, min(first, len(ranked) - width))
    return ranked[first : first + width]


def _draw(words: list[str], counts: Counter[str], rng: random.Random) -> list[str]:
    """Different wrong words, each as likely as it is common, which is how right ones come about too."""
    drawn: dict[str, None] = {}
    while len(drawn) < CHOICES - 1:
        drawn.setdefault(rng.choices(words, [counts[word] for word in words])[0])
    return list(drawn)


def _document(context: str, right: str, wrong: list[str], rng: random.Random) -> dict[str, Any]:
    choices = [right, *wrong]
    rng.shuffle(choices)
    return {"context": context, "choices": choices, "answer": choices.index(right)}


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
