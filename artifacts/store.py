"""The build store: content-addressed artifacts, and records that say which stage key gave which artifact.

::

    stages/<kk>/<key>.json          a StageRecord, written last
    artifacts/<dd>/<digest>/        manifest.json, data/…          complete if and only if it exists
    scratch/<key>/                  state of an interrupted worker, for the next one with this key
    work/<key>.<random>/            being built; anything here is of no worth once its builder is gone
    locks/<key>, locks/store        flock: one builder a key; builders share the store lock, gc takes it alone
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from artifacts.digest import canonical_json
from artifacts.files import sync, write_atomic
from artifacts.locks import locked
from artifacts.manifest import Manifest, files_under, scan
from artifacts.stage import StageRecord
from recipes.errors import StoreError

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Artifact:
    """A finished directory and its manifest."""

    digest: str
    path: Path
    """The files themselves. Read only."""
    manifest: Manifest


class Store:
    """A local build store. Any number of processes may use it at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            for name in ("stages", "artifacts", "scratch", "work", "locks"):
                (root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the store {root} can't be written ({error.strerror})",
                hint="Make it writable, or name another with --home or ENGINEWORKS_HOME",
            ) from None

    def record(self, key: str) -> StageRecord | None:
        """What ``key`` gave, if it was worked out and its artifact is still here."""
        path = self._record_path(key)
        try:
            record = StageRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            return None  # written by another version of Engineworks: the stage runs again and replaces it
        if not (self._artifact_path(record.artifact) / MANIFEST).is_file():
            return None
        with contextlib.suppress(OSError):  # a store that is only read: nothing of it will be collected either
            path.touch()  # gc goes by when a record was last used
        return record

    def artifact(self, digest: str) -> Artifact:
        """Raises :class:`StoreError` when it is not here."""
        folder = self._artifact_path(digest)
        try:
            manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        except (FileNotFoundError, ValidationError):
            raise StoreError(
                f"artifact {digest[:12]} is missing from {self.root} or damaged", hint="Build again"
            ) from None
        return Artifact(digest, folder / "data", manifest)

    @contextmanager
    def building(self, key: str, waiting: Callable[[], None] | None = None) -> Generator[None]:
        """Hold ``key``: until the block ends nobody else builds it, here or in another process, and gc waits."""
        with (
            locked(self.root / "locks" / "store", shared=True),
            locked(self.root / "locks" / key, waiting=waiting),
        ):
            for leftover in (self.root / "work").glob(f"{key}.*"):
                shutil.rmtree(leftover, ignore_errors=True)  # its builder held this lock and is gone
            yield

    def work_folder(self, key: str) -> Path:
        """A new empty directory to build in. Call it, and :meth:`commit`, inside :meth:`building`."""
        folder = self.root / "work" / f"{key}.{uuid.uuid4().hex[:8]}"
        (folder / "data").mkdir(parents=True)
        return folder

    def scratch_folder(self, key: str) -> Path:
        """A directory that outlives an interrupted build of ``key`` and goes with a finished one."""
        folder = self.root / "scratch" / key
        folder.mkdir(exist_ok=True)
        return folder

    def commit(self, key: str, work: Path, stage: str, metrics: dict[str, float]) -> StageRecord:
        """Turn ``work/data`` into an artifact and record it for ``key``. Durable when this returns."""
        manifest = scan(work / "data")
        for path in files_under(work / "data"):
            path.chmod(0o444)
            sync(path)
        write_atomic(work / MANIFEST, canonical_json(manifest))
        target = self._artifact_path(manifest.digest)
        target.parent.mkdir(exist_ok=True)
        for name in (".", "data"):
            sync(work / name)
        try:
            work.rename(target)
        except OSError:
            if not (target / MANIFEST).is_file():
                raise
            shutil.rmtree(work, ignore_errors=True)  # another key gave the same bytes
        sync(target.parent)
        return self.adopt(key, manifest.digest, stage, manifest.size, metrics)

    def adopt(self, key: str, artifact: str, stage: str, size: int, metrics: dict[str, float]) -> StageRecord:
        """Record that ``key`` gives an artifact that is already here."""
        record = StageRecord(
            key=key,
            artifact=artifact,
            stage=stage,
            bytes=size,
            metrics=metrics,
            built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        path = self._record_path(key)
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, record.model_dump_json(indent=1).encode())
        shutil.rmtree(self.root / "scratch" / key, ignore_errors=True)
        return record

    def _record_path(self, key: str) -> Path:
        return self.root / "stages" / key[:2] / f"{key}.json"

    def _artifact_path(self, digest: str) -> Path:
        return self.root / "artifacts" / digest[:2] / digest
