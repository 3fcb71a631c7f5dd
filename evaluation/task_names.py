"""Which evaluation tasks there are, known before lm-eval is installed or started."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

EMBEDDED = ("pydoc_next", "pydoc_word")
"""Made on the spot by evaluation/workers/build_tasks.py; no network."""
SHIPPED = Path(__file__).parent / "lm_eval_tasks.txt"
"""Tasks, groups and tags of the lm-eval that the toolchain pins, written by evaluation/workers/list_tasks.py."""


def known_tasks(include: Path | None = None) -> frozenset[str]:
    """Every name that ``evaluation.tasks`` may hold, with those that the task files under ``include`` define."""
    own: frozenset[str] = _defined_under(include) if include is not None else frozenset()
    return _shipped() | frozenset(EMBEDDED) | own


def unknown_tasks(names: Iterable[str], include: Path | None = None) -> list[str]:
    """Those of ``names`` that are no task, group or tag, in their order."""
    known = known_tasks(include)
    return [name for name in names if name not in known]


@cache
def _shipped() -> frozenset[str]:
    return frozenset(SHIPPED.read_text(encoding="utf-8").splitlines())


def _defined_under(folder: Path) -> frozenset[str]:
    """Names in lm-eval's own order of reading: a file with ``group`` or ``task`` counts, and a task's tags."""
    names: set[str] = set()
    for path in folder.rglob("*.yaml"):
        config = _config(path)
        name = config.get("task") if "class" in config or "group" not in config else config["group"]
        if not isinstance(name, str):
            continue
        names.add(name)
        if name != config.get("group"):
            tags: Any = config.get("tag") or []
            names.update([tags] if isinstance(tags, str) else map(str, tags))
    return frozenset(names)


def _config(path: Path, including: frozenset[Path] = frozenset()) -> dict[str, Any]:
    """A task file over those it includes; nothing for one that can't be read, which lm-eval skips as well.

    The round-trip reader takes ``!function`` tags, which only lm-eval can resolve, as plain text.
    """
    path = path.resolve()
    try:
        own: Any = YAML(typ="rt").load(path.read_text(encoding="utf-8"))  # pyright: ignore[reportUnknownMemberType]
    except (OSError, UnicodeDecodeError, YAMLError):
        return {}
    if not isinstance(own, dict) or path in including:
        return {}
    config = cast("dict[str, Any]", own)
    bases: Any = config.get("include") or []
    merged: dict[str, Any] = {}
    for base in cast("list[object]", [bases] if isinstance(bases, str) else bases):
        merged |= _config(path.parent / str(base), including | {path})
    return {**merged, **config}
