"""gc keeps what recent builds used, and never runs beside one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from artifacts.gc import collect_garbage
from artifacts.store import Store
from recipes.errors import StoreError
from tests.artifacts.test_store import KEY, OTHER, build


def age(store: Store, key: str, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(store.root / "stages" / key[:2] / f"{key}.json", (then, then))


def test_old_records_and_their_artifacts_go(tmp_path: Path) -> None:
    store = Store(tmp_path)
    build(store, KEY, "old")
    kept = build(store, OTHER, "new")
    age(store, KEY, days=40)
    (tmp_path / "work" / "leftover").mkdir()
    told = collect_garbage(store, 30, dry_run=True)
    assert (told.records, told.artifacts, (tmp_path / "work" / "leftover").exists()) == (1, 1, True)
    assert collect_garbage(store, 30) == told
    assert store.record(KEY) is None
    assert store.artifact(kept)
    assert not (tmp_path / "work" / "leftover").exists()
    assert collect_garbage(store, 30).bytes == 0


def test_an_artifact_that_a_recent_record_shares_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shared = build(store, KEY, "same")
    build(store, OTHER, "same")
    age(store, KEY, days=40)
    assert collect_garbage(store, 30).artifacts == 0
    assert store.artifact(shared)


def test_using_a_record_keeps_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    build(store, KEY, "x")
    age(store, KEY, days=40)
    assert store.record(KEY) is not None
    assert collect_garbage(store, 30).records == 0


def test_not_beside_a_build(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.building(KEY), pytest.raises(StoreError, match="a build is using the store"):
        collect_garbage(store, 30)
