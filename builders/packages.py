"""Python packages that carry a model file: installed alone, for their files, never imported."""

from __future__ import annotations

import shutil
import sys
import uuid
from pathlib import Path

from artifacts.locks import locked
from builders.toolchains import uv
from recipes.errors import BadRequest, Problem, StageFailed


def package_folder(requirement: str, home: Path) -> Path:
    """The folder that ``name==version`` is installed in, installing it if need be. Raises :class:`BadRequest`."""
    folder = home / "packages" / requirement
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f".{requirement}.lock"):
        if folder.is_dir():
            return folder
        for leftover in folder.parent.glob(f".{requirement}.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        new = folder.with_name(f".{requirement}.new-{uuid.uuid4().hex[:8]}")
        command = [
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--python",
            sys.executable,
            "--target",
            str(new),
            requirement,
        ]
        try:
            uv(command, stage="source.package")
        except StageFailed as error:
            if error.cause == "set_up":
                raise BadRequest(
                    Problem("source.package", repr(requirement), "a package that can be installed", error.message)
                ) from None
            raise
        new.rename(folder)
    return folder
