"""Publish, find, pull and verify a release in a directory registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.manifest import scan
from artifacts.pull import pull
from artifacts.registry import Registry
from artifacts.release import Release, VerdictSummary
from artifacts.storage_file import FileStorage
from artifacts.verify import verify


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"w" * 1000)
    (folder / "a file ü.txt").write_bytes(b"")
    return folder


def test_round_trip_and_tampering(tmp_path: Path, weights: Path) -> None:
    verdict = VerdictSummary(outcome="PASS", drop=0.0, upper_bound=0.01, margin=0.02, confidence=0.95, documents=10)
    release = Release(
        model="m", variant="v", scheme="fp8", tool="t", recipe={}, source={}, toolchains={}, calibration=None,
        targets=("cpu",), verdict=verdict, files=scan(weights).files,
    )  # fmt: skip
    registry = Registry(FileStorage(tmp_path / "registry"))
    files = {entry.path: weights / entry.path for entry in release.files}
    assert not registry.has(release.ref)
    assert registry.publish(release, files, {}) is True
    assert registry.publish(release, files, {}) is False
    assert registry.find(release.release_id[:6]) == release.ref
    assert list(verify(registry, release.ref)) == []
    pulled = pull(registry, release.ref, tmp_path / "pulled")
    assert (pulled / "model.safetensors").read_bytes() == b"w" * 1000
    (tmp_path / "registry" / release.ref.prefix / "model.safetensors").write_bytes(b"x" * 1000)
    assert [problem.where for problem in verify(registry, release.ref)] == ["model.safetensors"]
