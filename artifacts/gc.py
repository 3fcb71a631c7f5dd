"""Give back space in the build store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from artifacts.locks import locked_or_refused
from artifacts.stage import StageRecord
from artifacts.store import Store
from recipes.strict import Strict


class Collected(Strict):
    """What was removed, or would be."""

    records: int
    artifacts: int
    bytes: int


def collect_garbage(store: Store, older_than_days: float, *, dry_run: bool = False) -> Collected:
    """Drop records not used for ``older_than_days``, then every artifact that no record names, and all leftovers.

    Refuses while a build runs. Raises :class:`recipes.errors.StoreError`.
    """
    with locked_or_refused(store.root / "locks" / "store", "a build is using the store; run gc when it has ended"):
        horizon = time.time() - older_than_days * 86400
        old = [path for path in (store.root / "stages").glob("*/*.json") if path.stat().st_mtime < horizon]
        kept = {
            artifact
            for path in (store.root / "stages").glob("*/*.json")
            if path not in old
            for artifact in _artifact(path)
        }
        loose = [path for path in (store.root / "artifacts").glob("*/*") if path.name not in kept]
        leftovers = [*(store.root / "work").iterdir(), *(store.root / "scratch").iterdir()]
        size = sum(_size(path) for path in (*loose, *leftovers))
        if not dry_run:
            for path in old:  # records first: one without its artifact is no record, the reverse would be a lie
                path.unlink()
            for path in (*loose, *leftovers):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return Collected(records=len(old), artifacts=len(loose), bytes=size)


def _artifact(path: Path) -> Iterator[str]:
    try:
        yield StageRecord.model_validate_json(path.read_bytes()).artifact
    except ValidationError:
        return


def _size(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())
