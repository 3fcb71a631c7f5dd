"""Bring a release to this machine: parallel, resumable, verified, and there at once or not at all."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from artifacts.digest import digest_file
from artifacts.manifest import FileEntry
from artifacts.registry import MANIFEST, Progress, Registry, manifest_bytes
from artifacts.release import ReleaseRef
from recipes.errors import BadRequest, Problem, RegistryError

FILES_AT_ONCE = 4


def pull(
    registry: Registry, ref: ReleaseRef, destination: Path, progress: Progress = lambda _done, _total: None
) -> Path:
    """Fetch every file of the manifest into ``destination``, which appears only when all of them are right.

    Interrupted, the whole files stay in ``.<name>.partial`` beside it and are not fetched again. Raises
    :class:`BadRequest` when ``destination`` holds something else, :class:`RegistryError` on damage.
    """
    release = registry.release(ref)
    if destination.exists():
        held = destination / MANIFEST
        if held.is_file() and held.read_bytes() == manifest_bytes(release):
            return destination
        raise BadRequest(Problem("destination", f"{destination} exists and is not {ref}", "a new directory"))
    partial = destination.with_name(f".{destination.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(partial).free) < release.bytes:
        raise RegistryError(f"{destination.parent} has {free} bytes free, {ref} needs {release.bytes}")
    done = 0

    def fetch(entry: FileEntry) -> int:
        path = partial / entry.path
        if not (path.is_file() and path.stat().st_size == entry.size and digest_file(path) == entry.sha256):
            path.parent.mkdir(parents=True, exist_ok=True)
            registry.storage.download(f"{ref.prefix}/{entry.path}", path, entry)
        return entry.size

    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        try:
            for size in pool.map(fetch, release.files):
                done += size
                progress(done, release.bytes)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    (partial / MANIFEST).write_bytes(manifest_bytes(release))
    _drop_strays(partial, {MANIFEST, *(entry.path for entry in release.files)})
    partial.rename(destination)
    return destination


def _drop_strays(folder: Path, wanted: set[str]) -> None:
    """An earlier, interrupted pull of another release may have left files of its own."""
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
