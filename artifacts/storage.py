"""The few operations a registry needs of the place it lies in. Paths are relative keys with forward slashes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import urlparse

from artifacts.manifest import FileEntry
from recipes.errors import BadRequest, Problem


@dataclass(frozen=True)
class StoredObject:
    key: str
    size: int
    modified: datetime
    """By the storage's own clock, UTC."""


@dataclass(frozen=True)
class Tagged:
    """A small object as it stood at one moment."""

    data: bytes
    tag: str
    """Changes with the content: the ETag on S3."""


class Storage(Protocol):
    """A directory or a bucket prefix. Methods raise :class:`recipes.errors.RegistryError` when it can't be reached."""

    url: str
    """``s3://bucket/prefix`` or ``file:///directory``, without a slash at the end."""

    def check(self) -> None:
        """Raise now what the first write would raise: no such bucket, no permission, no connection."""
        ...

    def read(self, key: str) -> bytes | None:
        """The whole of a small object, or None if there is none."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write a small object unless one is there. False: one was, and it is untouched. Atomic between any writers."""
        ...

    def read_tagged(self, key: str) -> Tagged | None:
        """As :meth:`read`, with the tag that :meth:`replace` wants."""
        ...

    def replace(self, key: str, data: bytes, tag: str) -> bool:
        """Write a small object if the one there still has ``tag``. False: it has not, or is gone, and nothing changed.

        Atomic between any writers. A lost answer may hide that an earlier try won: read back to know.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; none there is no error."""
        ...

    def copy(self, source: str, key: str, entry: FileEntry) -> bool:
        """Copy inside the storage, without the bytes passing here. False: upload instead, the copy is not sure."""
        ...

    def lacks_conditions(self) -> str:
        """Try for real whether :meth:`create` and :meth:`replace` hold. The reason why not, or an empty string."""
        ...

    def now(self) -> datetime:
        """The time by the storage's clock, UTC: that of this machine may be wrong."""
        ...

    def upload(self, path: Path, key: str, entry: FileEntry) -> None:
        """Store a local file whole or not at all. ``entry`` has its size and SHA-256, checked on arrival."""
        ...

    def download(self, key: str, path: Path, entry: FileEntry) -> None:
        """Fetch to a local file. Raises RegistryError when the bytes are not the entry's, and leaves nothing then."""
        ...

    def has(self, key: str, entry: FileEntry) -> bool:
        """Whether the object is there whole, with the entry's size and SHA-256 (as recorded when it was stored)."""
        ...

    def digest(self, key: str) -> tuple[int, str] | None:
        """Size and SHA-256 of an object's bytes, read from end to end now. None if there is none."""
        ...

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Every object whose key starts with ``prefix``."""
        ...


def copy_hashing(source: Path, target: Path, block: int = 4 << 20) -> str:
    """Copy a file durably, reading it once. Returns the hex SHA-256 of what was copied."""
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while data := reader.read(block):
            digest.update(data)
            writer.write(data)
        writer.flush()
        os.fsync(writer.fileno())
    return digest.hexdigest()


def open_storage(url: str) -> Storage:
    """The storage a registry URL names. Raises :class:`BadRequest` for a URL that is neither file:// nor s3://."""
    parts = urlparse(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        from artifacts.storage_file import FileStorage

        return FileStorage(Path(parts.path))
    if parts.scheme == "s3" and parts.netloc:
        from artifacts.storage_s3 import S3Storage

        return S3Storage(bucket=parts.netloc, prefix=parts.path.strip("/"))
    raise BadRequest(Problem("publication.registry", repr(url), "s3://BUCKET/PREFIX or file:///ABSOLUTE/DIRECTORY"))
