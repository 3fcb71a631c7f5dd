"""Check a published release byte for byte against its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from artifacts.manifest import FileEntry
from artifacts.registry import ATTACHED, FILES_AT_ONCE, MANIFEST, SIGNATURES, Progress, Registry
from artifacts.release import ReleaseRef
from recipes.errors import Problem


def verify(registry: Registry, ref: ReleaseRef, progress: Progress = lambda _done, _total: None) -> Iterator[Problem]:
    """Everything that is not as the manifest says: files missing, changed or added. Reads every byte.

    Raises :class:`recipes.errors.RegistryError` when the manifest itself is missing or has been changed.
    """
    release = registry.release(ref)
    done = 0

    def digest(entry: FileEntry) -> tuple[int, str] | None:
        return registry.storage.digest(f"{ref.prefix}/{entry.path}")

    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        digests = pool.map(digest, release.files)
        for entry, seen in zip(release.files, digests, strict=True):
            if seen is None:
                yield Problem(entry.path, "missing", f"{entry.size} bytes")
            elif seen[0] != entry.size:
                yield Problem(entry.path, f"{seen[0]} bytes", f"{entry.size}")
            elif seen[1] != entry.sha256:
                yield Problem(entry.path, f"sha256 {seen[1][:16]}", entry.sha256[:16])
            done += entry.size
            progress(done, release.bytes)
    known = {entry.path for entry in release.files} | {MANIFEST, *ATTACHED}
    for item in registry.storage.list(f"{ref.prefix}/"):
        path = item.key[len(ref.prefix) + 1 :]
        if path not in known and not path.startswith(SIGNATURES):
            yield Problem(path, "not in the manifest", "no file")
