"""Which evaluation tasks there are, known before lm-eval is installed or started."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

EMBEDDED = ("pydoc_next", "pydoc_word")
"""Made on the spot by evaluation/workers/build_tasks.py; no network."""
SHIPPED = Path(__file__).parent / "lm_eval_tasks.txt"
"""Tasks, groups and tags of the lm-eval that the toolchain pins, written by evaluation/workers/list_tasks.py."""
NAMED = re.compile(r"^(?:task|group)\s*:\s*['\"]?([\w./+-]+)['\"]?\s*(?:#.*)?$", re.MULTILINE)
TAGS = re.compile(r"^tag\s*:\s*(?:['\"]?([\w./+-]+)['\"]?\s*$|((?:\n\s*-\s*[\w./+-]+)+))", re.MULTILINE)


def known_tasks(include: Path | None = None) -> frozenset[str]:
    """Every name that ``evaluation.tasks`` may hold, with those that the task files under ``include`` define."""
    return _shipped() | frozenset(EMBEDDED) | (_defined_under(include) if include is not None else frozenset())


@cache
def _shipped() -> frozenset[str]:
    return frozenset(SHIPPED.read_text(encoding="utf-8").split())


def _defined_under(folder: Path) -> frozenset[str]:
    """Names in lm-eval YAML files. Read by pattern: these files hold ``!function`` tags that only lm-eval can resolve."""
    names: set[str] = set()
    for path in folder.rglob("*.y*ml"):
        text = path.read_text(encoding="utf-8", errors="replace")
        names |= set(NAMED.findall(text))
        for one, several in TAGS.findall(text):
            names |= {one} if one else set(re.findall(r"-\s*([\w./+-]+)", several))
    return frozenset(names)
