"""The release registry: what is published, found and fetched, over any storage.

::

    releases/<model>/<variant>/<release-id>/    immutable; exists if and only if manifest.json exists (written last)
        manifest.json  README.md  recipe.json  weights/…  evaluation/…  serve/…
        build.json     when and where it was built     } for information: not vouched for by the manifest,
        provenance.json  bom.json                      } but by signatures
        signatures/<key>.json
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from artifacts.digest import canonical_json
from artifacts.release import Release, ReleaseRef, parse_reference
from artifacts.storage import Storage
from recipes.errors import BadRequest, Problem, RegistryError, nearest

MANIFEST = "manifest.json"
BUILD = "build.json"
PROVENANCE = "provenance.json"
BOM = "bom.json"
ATTACHED = (BUILD, PROVENANCE, BOM)
"""What tells of one build. It holds dates, so the manifest, the same for every build, can't list it."""
SIGNATURES = "signatures/"
FILES_AT_ONCE = 4

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


class Registry:
    """Releases in one storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def has(self, ref: ReleaseRef) -> bool:
        return self.storage.read(f"{ref.prefix}/{MANIFEST}") is not None

    def publish(
        self,
        release: Release,
        files: Mapping[str, Path],
        build: Mapping[str, Any],
        progress: Progress = lambda _done, _total: None,
    ) -> bool:
        """Upload what is not there yet, then the manifest: only then does the release exist.

        ``files``: path in the release → local file. False: it was published already. Interrupted at any moment, nothing
        is visible, and the next try sends only the files that are missing. Raises :class:`RegistryError`.
        """
        _refuse_reserved(release)
        prefix, manifest = release.ref.prefix, manifest_bytes(release)
        if self._is_published_as(prefix, manifest):
            return False
        done, total = 0, release.bytes

        def send(path: str) -> int:
            entry = entries[path]
            if not self.storage.has(f"{prefix}/{path}", entry):
                self.storage.upload(files[path], f"{prefix}/{path}", entry)
            return entry.size

        entries = {entry.path: entry for entry in release.files}
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            try:
                for size in pool.map(send, entries):
                    done += size
                    progress(done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        self.storage.create(f"{prefix}/{BUILD}", canonical_json(build) + b"\n")
        return self.storage.create(f"{prefix}/{MANIFEST}", manifest) or not self._is_published_as(prefix, manifest)

    def releases(self, model: str | None = None, variant: str | None = None) -> list[ReleaseRef]:
        """Every published release, sorted. Unfinished ones are not seen."""
        prefix = "releases/" + (f"{model}/" + (f"{variant}/" if variant else "") if model else "")
        found: list[ReleaseRef] = []
        for item in self.storage.list(prefix):
            parts = item.key.split("/")
            if len(parts) == 5 and parts[4] == MANIFEST and (variant is None or parts[2] == variant):
                try:
                    found.append(ReleaseRef(model=parts[1], variant=parts[2], release_id=parts[3]))
                except ValidationError:
                    continue  # not ours
        return sorted(found, key=str)

    def find(self, reference: str) -> ReleaseRef:
        """The one release that ``MODEL/VARIANT/ID``, ``VARIANT/ID`` or the start of an id names.

        Raises :class:`BadRequest` when there is none, or more than one.
        """
        model, variant, start = parse_reference(reference)
        every = self.releases(model)
        found = [ref for ref in every if ref.release_id.startswith(start) and variant in (None, ref.variant)]
        if len(found) == 1:
            return found[0]
        if found:
            raise BadRequest(
                Problem(
                    "release",
                    f"{reference!r} means {len(found)} releases",
                    "one",
                    f"Say which: {', '.join(map(str, found))}",
                )
            )
        hint = nearest(start, [ref.release_id for ref in every]) or "`engineworks list` shows them"
        raise BadRequest(Problem("release", f"no release {reference!r} in {self.storage.url}", "a published one", hint))

    def release(self, ref: ReleaseRef) -> Release:
        """Read a manifest. Raises :class:`RegistryError` when it is not what its place says."""
        where = f"{self.storage.url}/{ref.prefix}/{MANIFEST}"
        data = self.storage.read(f"{ref.prefix}/{MANIFEST}")
        if data is None:
            raise RegistryError(f"{where} is missing")
        try:
            release = Release.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise RegistryError(f"{where} is no manifest: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        if release.ref != ref:
            raise RegistryError(f"{where} has been changed: its content is that of {release.ref}")
        return release

    def location(self, ref: ReleaseRef) -> str:
        return f"{self.storage.url}/{ref.prefix}"

    def _is_published_as(self, prefix: str, manifest: bytes) -> bool:
        there = self.storage.read(f"{prefix}/{MANIFEST}")
        if there is not None and there != manifest:
            raise RegistryError(
                f"{self.storage.url}/{prefix} holds another manifest under this id", hint="Was it edited by hand?"
            )
        return there is not None


def _refuse_reserved(release: Release) -> None:
    if not release.files:
        raise BadRequest(Problem("release", "it holds no files", "at least one"))
    for entry in release.files:
        if entry.path in (MANIFEST, *ATTACHED) or entry.path.startswith(SIGNATURES):
            raise BadRequest(Problem("release", f"it holds a file {entry.path}", "that name left to the registry"))


def manifest_bytes(release: Release) -> bytes:
    return release.model_dump_json(indent=1).encode() + b"\n"
