"""A registry in a directory of this machine (or of a shared file system)."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from artifacts.digest import digest_file
from artifacts.files import sync
from artifacts.manifest import FileEntry
from artifacts.storage import StoredObject, copy_hashing
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
            with temporary.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            try:
                os.link(temporary, target)  # unlike rename, this fails when somebody was first
            except FileExistsError:
                return False
            sync(target.parent)
            return True

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
                if path.is_file() and key.startswith(prefix) and not path.name.startswith(TEMPORARY):
                    yield StoredObject(key, path.stat().st_size)

    @contextmanager
    def _temporary(self, target: Path) -> Generator[Path]:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{TEMPORARY}{uuid.uuid4().hex[:12]}")
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
