"""One builder a key, nothing recorded on failure, early cut-off by the inputs' digests."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifacts.stage import Stage, keys_of
from artifacts.store import Store
from builders import data_files
from builders.run_stage import Job, Workshop, run_stage
from recipes.errors import StageFailed, StoreError


def stage(name: str, path: Path, code: str = "1", **fields: object) -> Stage:
    params = {"path": str(path), "fingerprint": str(fields.pop("fingerprint", ""))}
    return Stage.model_validate(
        {"name": name, "kind": name, "entry": "builders.data_files:copy", "params": params, "code": code, **fields}
    )


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(Store(tmp_path / "store"), tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.txt"
    path.write_text("hello")
    return path


def test_the_second_time_nothing_is_done(shop: Workshop, file: Path) -> None:
    it = stage("a", file)
    key = keys_of((it,))["a"]
    assert run_stage(it, key, {}, shop).outcome == "ran"
    file.unlink()
    assert run_stage(it, key, {}, shop).outcome == "cached"


def test_two_at_once_do_it_once(shop: Workshop, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=20)
    original = shop.store.building

    def building(key: str, waiting: object = None) -> object:
        both.wait()  # both have looked into the store and found nothing
        return original(key)

    monkeypatch.setattr(shop.store, "building", building)
    it = stage("a", file)
    key = keys_of((it,))["a"]
    with ThreadPoolExecutor(2) as pool:
        outcomes = sorted(result.outcome for result in pool.map(lambda _: run_stage(it, key, {}, shop), range(2)))
    assert outcomes == ["cached", "ran"]


def test_an_equal_input_cuts_off_early(shop: Workshop, file: Path) -> None:
    """Touching the source runs its fetch again; it gives the same bytes, and what comes after does not run."""
    outcomes = []
    for fingerprint in ("yesterday", "today"):
        first = stage("a", file, fingerprint=fingerprint)
        second = stage("b", file, inputs={"x": "a"})
        keys = keys_of((first, second))
        digest = run_stage(first, keys["a"], {}, shop).record.artifact
        outcomes.append(run_stage(second, keys["b"], {"x": digest}, shop).outcome)
    assert outcomes == ["ran", "adopted"]


def test_a_failure_records_nothing_and_the_next_try_goes_on(
    shop: Workshop, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = stage("a", file)
    key = keys_of((it,))["a"]
    with monkeypatch.context() as patch:

        def full(job: Job) -> None:
            (job.output / "half").write_text("x")
            raise OSError(errno.ENOSPC, "No space left on device", "half")

        patch.setattr(data_files, "copy", full)
        with pytest.raises(StageFailed, match="disk is full") as failed:
            run_stage(it, key, {}, shop)
    assert failed.value.cause == "disk_full"
    assert shop.store.record(key) is None
    assert list((shop.store.root / "work").iterdir()) == []
    result = run_stage(it, key, {}, shop)
    assert result.outcome == "ran"
    assert [entry.path for entry in shop.store.artifact(result.record.artifact).manifest.files] == ["file.txt"]


def test_what_decides_the_key(file: Path) -> None:
    base = stage("a", file)
    same = base.model_copy(update={"name": "other", "timeout_s": 5.0, "after": ("b",)})
    assert keys_of((base,))["a"] == keys_of((same,))["other"]
    for change in ({"code": "2"}, {"pins": "x"}, {"params": {"path": "y"}}, {"kind": "z"}, {"toolchain": "t"}):
        assert keys_of((base.model_copy(update=change),))["a"] != keys_of((base,))["a"], change


def test_a_read_only_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refused)  # root may write anywhere, so permissions alone prove nothing
    with pytest.raises(StoreError, match="ENGINEWORKS_HOME"):
        Store(tmp_path / "store")
