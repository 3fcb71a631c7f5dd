"""The build store keeps what was committed, and nothing else."""

from __future__ import annotations

from pathlib import Path

from artifacts.store import Store

KEY, OTHER = "a" * 64, "b" * 64


def build(store: Store, key: str, text: str) -> str:
    with store.building(key):
        work = store.work_folder(key)
        (work / "data" / "x.txt").write_text(text)
        return store.commit(key, work, "stage", {}).artifact


def test_a_committed_artifact_is_found_and_equal_bytes_are_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.record(KEY) is None
    digest = build(store, KEY, "hello")
    assert store.record(KEY) is not None
    assert (store.artifact(digest).path / "x.txt").read_text() == "hello"
    assert build(store, OTHER, "hello") == digest
    assert list((tmp_path / "work").iterdir()) == []


def test_an_interrupted_build_leaves_no_record_and_is_swept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.building(KEY):
        store.work_folder(KEY)
    assert store.record(KEY) is None
    build(store, KEY, "hello")
    assert list((tmp_path / "work").iterdir()) == []
