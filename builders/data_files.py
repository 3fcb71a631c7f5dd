"""Stage function that takes a user's file or folder into the store."""

from __future__ import annotations

import shutil
from pathlib import Path

from builders.run_stage import Job
from recipes.errors import BadRequest, Problem


def copy(job: Job) -> None:
    """Params: ``path``, ``fingerprint``. Output: the file under its own name, or the folder's contents."""
    path = Path(job.params["path"])
    if path.is_dir():
        shutil.copytree(path, job.output, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    elif path.is_file():
        shutil.copyfile(path, job.output / path.name)
    else:
        raise BadRequest(Problem(job.stage, f"no file {path}", "a file that exists"))
