"""English prose that is on every machine: CPython's own reference (``pydoc_data.topics``) and its docstrings.

A quarter of the topics, chosen by a hash of their name, is for calibration, with the docstrings when more is wanted.
The other three quarters are for evaluation, so that no model is judged on text it was calibrated on.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

FEWEST_WORDS = 8


def calibration_paragraphs() -> list[str]:
    """Paragraphs of the calibration topics, in a fixed order: some 15,000 tokens."""
    evaluated = _evaluated_sentences()
    return [paragraph for paragraph in _paragraphs(evaluation=False) if evaluated.isdisjoint(sentences(paragraph))]


def docstring_paragraphs() -> list[str]:
    """Paragraphs of the standard library's docstrings that no topic holds: some 215,000 tokens, in a few seconds."""
    seen = {*_paragraphs(evaluation=False), *_paragraphs(evaluation=True)}
    evaluated = _evaluated_sentences()
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py")):
        if {"test", "tests", "idlelib", "lib2to3", "site-packages"} & set(path.parts) or "pydoc_data" in path.parts:
            continue
        for text in _docstrings(path):
            for paragraph in _prose(text):
                if paragraph not in seen and evaluated.isdisjoint(sentences(paragraph)):
                    seen.add(paragraph)
                    found.append(paragraph)
    return found


def evaluation_paragraphs() -> list[str]:
    """Paragraphs of the evaluation topics that do not stand in calibration topics too (topics quote each other)."""
    calibration = set(_paragraphs(evaluation=False))
    return [paragraph for paragraph in _paragraphs(evaluation=True) if paragraph not in calibration]


def sentences(paragraph: str) -> list[str]:
    """Split at a full stop, question or exclamation mark before a capital letter."""
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+(?=[A-Z])", paragraph) if part.strip()]


def _evaluated_sentences() -> set[str]:
    """What calibration text must not hold, in whatever paragraph; not "For example:", which stands everywhere."""
    found = (sentence for paragraph in evaluation_paragraphs() for sentence in sentences(paragraph))
    return {sentence for sentence in found if len(sentence.split()) >= FEWEST_WORDS}


def _paragraphs(*, evaluation: bool) -> Iterator[str]:
    seen: set[str] = set()
    for name in sorted(topics):
        for_calibration = hashlib.sha256(name.encode()).digest()[0] % 4 == 0
        if for_calibration is evaluation:
            continue
        for text in _prose(topics[name]):
            if text not in seen:
                seen.add(text)
                yield text


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            yield text


def _prose(text: str) -> Iterator[str]:
    """Paragraphs that are not a heading, a grammar rule, code, a table or a list of names; white space folded."""
    for block in re.split(r"\n\s*\n", text):
        if re.search(r"::=|>>>|\*{4,}|={4,}|-{4,}|\+--|\|", block):
            continue
        unbroken = re.sub(r"(?<=\w)-\n\s*(?=\w)", "-", block)  # "built-" at a line's end, "in" on the next
        paragraph = " ".join(unbroken.split())
        words = paragraph.split()
        plain = sum(word.strip('.,;:()"?!').isalpha() for word in words)
        if (
            len(words) >= FEWEST_WORDS
            and paragraph[0].isupper()
            and paragraph.endswith((".", ":", "?", "!"))
            and plain >= 0.7 * len(words)
        ):
            yield paragraph
