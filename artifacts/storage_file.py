"""A registry in a directory of this machine (or of a shared file system)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from artifacts.digest import digest_file
from artifacts.files import sync
from artifacts.manifest import FileEntry
from artifacts.storage import StoredObject, Tagged, copy_hashing
from recipes.errors import RegistryError

TEMPORARY = ".engineworks-"
"""Start of the names of unfinished files. They are never listed."""


class FileStorage:
    """Implements :class:`artifacts.storage.Storage` over a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"file://{root}"

    def check(self) -> None:
        with self._explained():
            self.root.mkdir(parents=True, exist_ok=True)
            if not os.access(self.root, os.W_OK | os.X_OK):
                raise RegistryError(f"the registry {self.url} can't be written", hint="Check its owner and mode")

    def read(self, key: str) -> bytes | None:
        with self._explained(), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return (self.root / key).read_bytes()
        return None

    def create(self, key: str, data: bytes) -> bool:
        target = self.root / key
        with self._explained(), self._temporary(target) as temporary:
            self._write(temporary, data)
            try:
                os.link(temporary, target)  # unlike rename, this fails when somebody was first
            except FileExistsError:
                return False
            sync(target.parent)
            return True

    def read_tagged(self, key: str) -> Tagged | None:
        data = self.read(key)
        return None if data is None else Tagged(data, hashlib.sha256(data).hexdigest())

    def replace(self, key: str, data: bytes, tag: str) -> bool:
        with self._explained(), self._alone():
            there = self.read_tagged(key)
            if there is None or there.tag != tag:
                return False
            with self._temporary(self.root / key) as temporary:
                self._write(temporary, data)
                temporary.replace(self.root / key)
                sync(temporary.parent)
            return True

    def delete(self, key: str) -> None:
        path = self.root / key
        with self._explained():
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # folders that are empty now; another writer may have filled one
                for folder in path.relative_to(self.root).parents:
                    if folder != Path():
                        (self.root / folder).rmdir()

    def copy(self, source: str, key: str, entry: FileEntry) -> bool:
        path = self.root / source
        if not path.is_file():
            return False
        self.upload(path, key, entry)
        return True

    def lacks_conditions(self) -> str:
        with self._explained():
            try:
                with self._alone():
                    return ""
            except OSError as error:
                if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                    return f"its file system has no locks ({error.strerror})"
                raise

    def now(self) -> datetime:
        return datetime.now(UTC)

    def upload(self, path: Path, key: str, entry: FileEntry) -> None:
        target = self.root / key
        with self._explained(), self._temporary(target) as temporary:
            if copy_hashing(path, temporary) != entry.sha256:
                raise RegistryError(f"{path} changed while it was published", hint="Build again")
            temporary.chmod(0o644)
            temporary.replace(target)
            sync(target.parent)

    def download(self, key: str, path: Path, entry: FileEntry) -> None:
        with self._explained():
            try:
                seen = copy_hashing(self.root / key, path)
            except FileNotFoundError:
                raise RegistryError(f"{self.url}/{key} is missing") from None
        if seen != entry.sha256:
            path.unlink()
            raise RegistryError(
                f"{self.url}/{key} is damaged: sha256 {seen[:12]}, the manifest says {entry.sha256[:12]}"
            )

    def has(self, key: str, entry: FileEntry) -> bool:
        path = self.root / key
        with self._explained(), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return path.stat().st_size == entry.size and digest_file(path) == entry.sha256
        return False

    def digest(self, key: str) -> tuple[int, str] | None:
        path = self.root / key
        with self._explained(), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return path.stat().st_size, digest_file(path)
        return None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        folder = self.root / prefix if prefix.endswith("/") else (self.root / prefix).parent
        with self._explained():
            for path in sorted(folder.rglob("*")):
                key = path.relative_to(self.root).as_posix()
                if path.name.startswith(TEMPORARY) or not key.startswith(prefix):
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                    state = path.stat()
                    if path.is_file():
                        yield StoredObject(key, state.st_size, datetime.fromtimestamp(state.st_mtime, UTC))

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        with path.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())

    @contextmanager
    def _alone(self) -> Generator[None]:
        """One replacement at a time, among all processes. The kernel lets go when the holder dies."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / f"{TEMPORARY}lock").open("a+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _temporary(self, target: Path) -> Generator[Path]:
        temporary = target.with_name(f"{TEMPORARY}{uuid.uuid4().hex[:12]}")
        while True:
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # a deletion has just swept the empty folder away
                temporary.touch()
                break
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise RegistryError(f"the registry {self.url} can't be used ({error.strerror}: {error.filename})") from None
