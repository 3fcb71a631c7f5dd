"""What an artifact holds: every file with its size and SHA-256. The artifact's digest is the hash of this list."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from artifacts.digest import digest_file, digest_json
from recipes.errors import StoreError
from recipes.strict import Strict

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FileEntry(Strict):
    """One file of an artifact or a release."""

    path: str
    """Relative, with forward slashes, inside the directory."""
    size: Annotated[int, Field(ge=0)]
    sha256: Sha256

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        parts = PurePosixPath(path).parts
        if (
            not parts
            or path != str(PurePosixPath(path))
            or path.startswith("/")
            or ".." in parts
            or "\\" in path
            or "\0" in path
        ):
            raise ValueError(f"{path!r} is not a plain relative path")
        return path


class Manifest(Strict):
    """The files of an artifact, sorted by path."""

    files: tuple[FileEntry, ...]

    @model_validator(mode="after")
    def _sorted_and_distinct(self) -> Manifest:
        paths = [entry.path for entry in self.files]
        if paths != sorted(paths):
            raise ValueError("files are not sorted by path")
        folded = [path.casefold() for path in paths]
        if len(set(folded)) != len(folded):
            twice = next(path for path in paths if folded.count(path.casefold()) > 1)
            raise ValueError(f"{twice!r} and another path differ by case only: they would collide on some file systems")
        return self

    @property
    def digest(self) -> str:
        return digest_json(self)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(entry.size for entry in self.files)


def files_under(folder: Path) -> Iterator[Path]:
    """Every file below ``folder``, sorted. Raises :class:`StoreError` on links and special files: they can't travel."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{path} is a link or a special file; an artifact holds plain files only")
        if path.is_file():
            yield path


def scan(folder: Path) -> Manifest:
    """Hash every file below ``folder``. hashlib releases the GIL, so files are hashed side by side."""
    paths = list(files_under(folder))
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        hashes = list(pool.map(digest_file, paths))
    entries = [
        FileEntry(path=path.relative_to(folder).as_posix(), size=path.stat().st_size, sha256=sha256)
        for path, sha256 in zip(paths, hashes, strict=True)
    ]
    return Manifest(files=tuple(sorted(entries, key=lambda entry: entry.path)))
