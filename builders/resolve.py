"""Pin down where a checkpoint comes from, and learn its shapes, before anything is fetched or run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from artifacts.digest import digest_json
from artifacts.files import write_atomic
from builders import hub, s3_source
from builders.checkpoint import read_checkpoint
from builders.model_facts import ModelFacts, facts_of_checkpoint, facts_of_gguf
from builders.packages import package_folder
from recipes.errors import BadRequest, Problem
from recipes.sources import GgufSource, HubSource, PathSource, S3Source, Source
from recipes.strict import Strict


class ResolvedSource(Strict):
    """A source as it is now: same ``params``, same bytes."""

    kind: str
    params: dict[str, JsonValue]
    """Of the stage that fetches it. They hold the commit, or a fingerprint of the files."""
    facts: ModelFacts

    @property
    def revision(self) -> str:
        """The commit, package version or fingerprint that stands for the content."""
        return str(self.params.get("revision") or self.params.get("package") or self.params["fingerprint"])


def resolve_source(source: Source, home: Path) -> ResolvedSource:
    """Ask the source for its present revision. Raises :class:`BadRequest` when it is not there or not whole."""
    match source:
        case HubSource():
            params: dict[str, Any] = {
                "repo": source.repo,
                "revision": hub.resolve_commit(source.repo, source.revision, home / "refs"),
                "allow_pickle": source.allow_pickle,
            }
        case PathSource():
            folder = source.path.resolve()
            if not folder.is_dir():
                raise BadRequest(Problem("source.path", f"no directory {source.path}", "a checkpoint directory"))
            params = {"path": str(folder), "fingerprint": fingerprint(folder), "allow_pickle": source.allow_pickle}
        case S3Source():
            params = {
                "uri": source.uri,
                "fingerprint": s3_source.fingerprint(source.uri),
                "allow_pickle": source.allow_pickle,
            }
        case GgufSource(package=None):
            file = source.file.resolve()
            _check_gguf(file)
            params = {"path": str(file), "fingerprint": fingerprint(file)}
        case GgufSource():
            params = {"package": source.package, "file": str(source.file)}
    return ResolvedSource(kind=source.kind, params=params, facts=_facts(source, params, home))


def _facts(source: Source, params: dict[str, Any], home: Path) -> ModelFacts:
    """Read once per revision, then remembered: headers of a large checkpoint, or a remote one, cost seconds."""
    path = home / "facts" / f"{digest_json([source.kind, params, sorted(ModelFacts.model_fields)])}.json"
    with contextlib.suppress(OSError, ValidationError):
        return ModelFacts.model_validate_json(path.read_bytes())
    match source:
        case HubSource():
            facts = hub.model_facts(source.repo, params["revision"], allow_pickle=source.allow_pickle)
        case PathSource():
            facts = facts_of_checkpoint(
                read_checkpoint(Path(params["path"]), "source.path", allow_pickle=source.allow_pickle)
            )
        case S3Source():
            facts = s3_source.model_facts(source.uri)
        case GgufSource():
            file = (
                source.file.resolve() if source.package is None else package_folder(source.package, home) / source.file
            )
            _check_gguf(file)
            facts = facts_of_gguf(file, bytes_per_weight=4 if source.dtype == "float32" else 2)
    with contextlib.suppress(OSError):  # only a memory: a read-only home is reported by the store
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, facts.model_dump_json().encode())
    return facts


def _check_gguf(file: Path) -> None:
    if not file.is_file():
        there = ", ".join(sorted(str(p.relative_to(file.parent)) for p in file.parent.glob("**/*.gguf"))[:5])
        raise BadRequest(Problem("source.file", f"no file {file}", "a GGUF file", f"There: {there}." if there else ""))
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise BadRequest(Problem("source.file", f"{file.name} does not start with 'GGUF'", "a GGUF file"))


def fingerprint(path: Path) -> str:
    """Names, sizes and times of change of the files: what ``make`` and git go by. Hashing 100 GB at every plan would
    take minutes; a checkpoint touched but not changed is fetched again and found equal, and nothing after it runs."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    stats = [(p.name if p == path else p.relative_to(path).as_posix(), p.stat()) for p in files]
    return digest_json([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats])
