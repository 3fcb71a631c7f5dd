"""Publish an assembled release: the one step whose result lies outside the store."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

from artifacts.registry import Progress, Registry
from artifacts.release import ReleaseRef
from artifacts.storage import open_storage
from artifacts.store import Store
from evaluation.assemble import read_release, release_files


def publish(
    release: str,
    inputs: dict[str, str],
    metrics: dict[str, dict[str, float]],
    registry: str,
    store: Store,
    progress: Progress,
) -> ReleaseRef:
    """``release``: digest of what :mod:`evaluation.assemble` wrote; ``inputs``: digests of what it was made from.

    Published already: nothing is sent. Raises :class:`recipes.errors.RegistryError`.
    """
    assembled = store.artifact(release)
    manifest = read_release(assembled.path)
    files = release_files(assembled, {name: store.artifact(digest) for name, digest in inputs.items()})
    build: dict[str, Any] = {
        "published_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "system": platform.platform(),
        "stages": metrics,
    }
    Registry(open_storage(registry)).publish(manifest, files, build, progress)
    return manifest.ref
