"""Storages of both kinds."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from artifacts.storage import Storage, open_storage
from artifacts.storage_file import FileStorage


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "file":
        return FileStorage(tmp_path / "registry")
    request.getfixturevalue("s3_server")
    return open_storage(f"s3://releases/{uuid.uuid4().hex}")
