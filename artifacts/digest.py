"""Canonical JSON and SHA-256: the one way anything is named by its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel


def canonical_json(value: object) -> bytes:
    """Sorted keys, no spaces, UTF-8, no NaN: equal values give equal bytes on every machine and Python."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_json(value: object) -> str:
    """Hex SHA-256 of :func:`canonical_json`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def digest_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read once in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_sources(paths: Iterable[Path]) -> str:
    """Hex SHA-256 over the names and bytes of source files, whatever their order and folder."""
    return digest_json(sorted((path.name, digest_file(path)) for path in paths))
