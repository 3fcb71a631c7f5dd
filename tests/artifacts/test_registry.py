"""Publish, find, pull and verify, over a directory and over a real S3 server."""

from __future__ import annotations

import hashlib
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifacts.manifest import FileEntry, scan
from artifacts.pull import pull
from artifacts.registry import Registry
from artifacts.storage import Storage, open_storage
from artifacts.verify import verify
from recipes.errors import BadRequest, RegistryError
from tests.artifacts.releases import files_of, release_of
from tests.conftest import S3Server


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "built"
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / "model.safetensors").write_bytes(b"w" * 100_000)
    (folder / "weights" / "a file ü.txt").write_bytes(b"")
    (folder / "README.md").write_text("card")
    return folder


class Faulty:
    """A storage that loses its connection after some uploads, and counts them."""

    def __init__(self, inner: Storage, uploads: int) -> None:
        self.inner, self.left, self.url, self.sent = inner, uploads, inner.url, 0

    def upload(self, path: Path, key: str, entry: FileEntry) -> None:
        if self.left == 0:
            raise RegistryError(f"{self.url} can't be reached")
        self.left -= 1
        self.sent += 1
        self.inner.upload(path, key, entry)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_round_trip(storage: Storage, weights: Path, tmp_path: Path) -> None:
    registry, release = Registry(storage), release_of(weights)
    assert not registry.has(release.ref)
    assert registry.publish(release, files_of(weights, release), {"at": "now"}) is True
    assert registry.publish(release, files_of(weights, release), {"at": "later"}) is False
    assert registry.releases() == registry.releases("m") == registry.releases("m", "v") == [release.ref]
    assert registry.releases("other") == []
    assert registry.find(release.release_id[:6]) == registry.find(f"m/v/{release.release_id}") == release.ref
    assert registry.release(release.ref) == release
    assert list(verify(registry, release.ref)) == []
    pulled = pull(registry, release.ref, tmp_path / "pulled")
    assert scan(pulled / "weights") == scan(weights / "weights")
    assert pull(registry, release.ref, tmp_path / "pulled") == pulled


def test_an_interrupted_publication_is_not_seen_and_goes_on(storage: Storage, weights: Path) -> None:
    release = release_of(weights)
    with pytest.raises(RegistryError):
        Registry(Faulty(storage, uploads=1)).publish(release, files_of(weights, release), {})
    registry = Registry(storage)
    assert registry.releases() == []
    with pytest.raises(BadRequest):
        registry.find(release.release_id)
    again = Faulty(storage, uploads=99)
    Registry(again).publish(release, files_of(weights, release), {})
    assert again.sent == len(release.files) - 1  # what was sent is not sent again
    assert list(verify(registry, release.ref)) == []


def test_many_publishers_one_release(storage: Storage, weights: Path) -> None:
    release = release_of(weights)
    with ThreadPoolExecutor(6) as pool:
        won = list(pool.map(lambda _: Registry(storage).publish(release, files_of(weights, release), {}), range(6)))
    assert won.count(True) == 1
    assert list(verify(Registry(storage), release.ref)) == []


def test_damage_is_found(storage: Storage, weights: Path, tmp_path: Path) -> None:
    registry, release = Registry(storage), release_of(weights)
    registry.publish(release, files_of(weights, release), {})
    bad = tmp_path / "bad"
    bad.write_bytes(b"x" * 100_000)
    lie = FileEntry(path="bad", size=100_000, sha256=hashlib.sha256(b"x" * 100_000).hexdigest())
    storage.upload(bad, f"{release.ref.prefix}/weights/model.safetensors", lie)
    storage.upload(bad, f"{release.ref.prefix}/weights/extra.bin", lie)
    found = {problem.where: problem.seen for problem in verify(registry, release.ref)}
    assert set(found) == {"weights/model.safetensors", "weights/extra.bin"}
    assert found["weights/extra.bin"] == "not in the manifest"
    with pytest.raises(RegistryError, match="damaged"):
        pull(registry, release.ref, tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()


def test_a_pull_resumes_and_replaces_nothing(storage: Storage, weights: Path, tmp_path: Path) -> None:
    registry, release = Registry(storage), release_of(weights)
    registry.publish(release, files_of(weights, release), {})
    partial = tmp_path / ".pulled.partial" / "weights"
    partial.mkdir(parents=True)
    (partial / "model.safetensors").write_bytes(b"w" * 10)  # cut off
    (partial / "stray").write_bytes(b"of another release")
    assert scan(pull(registry, release.ref, tmp_path / "pulled") / "weights") == scan(weights / "weights")
    (tmp_path / "mine").mkdir()
    with pytest.raises(BadRequest, match="a new directory"):
        pull(registry, release.ref, tmp_path / "mine")


def test_a_changed_manifest_is_refused(storage: Storage, weights: Path) -> None:
    registry, release = Registry(storage), release_of(weights)
    manifest = json.loads(release.model_dump_json())
    for change, says in (
        ({"scheme": "int8"}, "has been changed"),
        ({"files": [{"path": "../x", "size": 1, "sha256": "0" * 64}]}, "not a plain relative path"),
    ):
        ref = release.ref.model_copy(update={"variant": f"v{len(says)}"})
        assert storage.create(f"{ref.prefix}/manifest.json", json.dumps(manifest | change).encode())
        with pytest.raises(RegistryError, match=says):
            registry.release(ref)


@pytest.mark.s3
def test_s3_troubles_are_told_plainly(s3_server: object, monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    with pytest.raises(RegistryError, match="no such bucket"):
        open_storage("s3://not-there/x").check()
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "PLANTED-SECRET")
        with pytest.raises(RegistryError, match="access denied") as denied:
            open_storage("s3://releases/x").read("y")
        assert "PLANTED-SECRET" not in str(denied.value)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        with pytest.raises(RegistryError, match="can't be reached"):
            open_storage("s3://releases/x").check()


@pytest.mark.s3
def test_a_server_gone_in_mid_upload(s3_server: S3Server, weights: Path) -> None:
    """Refused with a clear word, nothing visible; with the server back the same call goes on and ends well."""
    storage = open_storage(f"s3://releases/{uuid.uuid4().hex}")
    registry, release = Registry(storage), release_of(weights)

    def gone(_done: int, _total: int) -> None:
        if s3_server.process.poll() is None:
            s3_server.kill()

    with pytest.raises(RegistryError, match="can't be reached"):
        registry.publish(release, files_of(weights, release), {}, progress=gone)
    s3_server.start()
    assert registry.releases() == []
    assert registry.publish(release, files_of(weights, release), {}) is True
    assert list(verify(registry, release.ref)) == []
