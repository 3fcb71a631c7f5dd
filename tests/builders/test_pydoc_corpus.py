"""The embedded text: the same on every run, split so that no evaluated sentence was calibrated on, and prose."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

WORKERS = Path(__file__).parents[2] / "builders" / "workers"
sys.path.insert(0, str(WORKERS))  # as worker processes find it
import pydoc_corpus  # noqa: E402

BOTH = [pydoc_corpus.calibration_paragraphs, pydoc_corpus.evaluation_paragraphs]


def _sentences(paragraphs: list[str]) -> set[str]:
    found = {sentence for paragraph in paragraphs for sentence in pydoc_corpus.sentences(paragraph)}
    return {sentence for sentence in found if len(sentence.split()) >= pydoc_corpus.FEWEST_WORDS}


@pytest.mark.parametrize("paragraphs", BOTH)
def test_paragraphs_are_folded_prose_without_repeats(paragraphs: Callable[[], list[str]]) -> None:
    found = paragraphs()
    assert len(found) == len(set(found))
    for paragraph in found:
        assert paragraph == " ".join(paragraph.split())
        assert len(paragraph.split()) >= pydoc_corpus.FEWEST_WORDS


@pytest.mark.parametrize("mark", ["::=", ">>>", "|", "+--", "====", "----", "****"])
def test_grammar_code_and_tables_are_left_out(monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    prose = "This plain paragraph has more than enough words to be kept as prose."
    other = f"This one {mark} would be kept as well but for the mark that stands in it."
    monkeypatch.setattr(pydoc_corpus, "topics", {"topic": f"{other}\n\n{prose}"})
    assert pydoc_corpus.calibration_paragraphs() + pydoc_corpus.evaluation_paragraphs() == [prose]


def test_words_broken_at_a_hyphen_are_whole_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        pydoc_corpus, "topics", {"topic": "It calls the built-\n   in function - as ever -\n   and returns it."}
    )
    (paragraph,) = pydoc_corpus.calibration_paragraphs() + pydoc_corpus.evaluation_paragraphs()
    assert paragraph == "It calls the built-in function - as ever - and returns it."


def test_there_is_enough_of_both() -> None:
    """The embedded tasks and a 16 × 512 calibration live on this; CPython versions differ by a few per cent."""
    calibration, evaluation = (sum(len(text.split()) for text in paragraphs()) for paragraphs in BOTH)
    assert calibration > 6_000
    assert evaluation > 20_000


def test_no_evaluated_sentence_is_calibrated_on() -> None:
    calibrated = _sentences(pydoc_corpus.calibration_paragraphs() + pydoc_corpus.docstring_paragraphs())
    assert not calibrated & _sentences(pydoc_corpus.evaluation_paragraphs())


def test_docstrings_that_quote_an_evaluated_sentence_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "This plain sentence has more than enough words to be evaluated."
    other = "This paragraph of a docstring stands in no topic at all."
    evaluated = next(name for name in map(str, range(99)) if hashlib.sha256(name.encode()).digest()[0] % 4)
    monkeypatch.setattr(pydoc_corpus, "topics", {evaluated: sentence})
    monkeypatch.setattr(pydoc_corpus, "_docstrings", lambda path: [f"{sentence} And more follows it.", other])
    assert pydoc_corpus.docstring_paragraphs() == [other]


def test_order_and_content_do_not_hang_on_the_process() -> None:
    program = (
        "import hashlib, pydoc_corpus as corpus;"
        "text = '\\n'.join(corpus.calibration_paragraphs() + corpus.evaluation_paragraphs());"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    here = "\n".join(pydoc_corpus.calibration_paragraphs() + pydoc_corpus.evaluation_paragraphs())
    for seed in ("1", "2"):
        environment = {"PYTHONPATH": str(WORKERS), "PYTHONHASHSEED": seed}
        there = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert there.stdout.strip() == hashlib.sha256(here.encode()).hexdigest()


def test_split_follows_the_topic_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that comes or goes moves no other topic to the other side."""
    before = set(pydoc_corpus.calibration_paragraphs())
    fewer = dict(sorted(pydoc_corpus.topics.items())[1:])
    monkeypatch.setattr(pydoc_corpus, "topics", fewer)
    assert not set(pydoc_corpus.evaluation_paragraphs()) & before


def test_sentences_end_before_a_capital_letter() -> None:
    text = "It is called, e.g. by name. Then it returns! Does it? Yes."
    assert pydoc_corpus.sentences(text) == ["It is called, e.g. by name.", "Then it returns!", "Does it?", "Yes."]
    assert pydoc_corpus.sentences("Version 3.11 is out") == ["Version 3.11 is out"]
