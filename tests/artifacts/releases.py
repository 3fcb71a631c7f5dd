"""Releases made for tests."""

from __future__ import annotations

from pathlib import Path

from artifacts.manifest import scan
from artifacts.registry import Registry
from artifacts.release import Release, ReleaseRef, VerdictSummary


def release_of(folder: Path, **changes: object) -> Release:
    verdict = VerdictSummary(outcome="PASS", drop=0.0, upper_bound=0.01, margin=0.02, confidence=0.95, documents=10)
    fields: dict[str, object] = {
        "model": "m", "variant": "v", "scheme": "fp8", "tool": "t", "recipe": {}, "source": {}, "toolchains": {},
        "calibration": None, "targets": ("cpu",), "verdict": verdict, "files": scan(folder).files,
    }  # fmt: skip
    return Release.model_validate(fields | changes)


def files_of(folder: Path, release: Release) -> dict[str, Path]:
    return {entry.path: folder / entry.path for entry in release.files}


def verdict(outcome: str) -> VerdictSummary:
    return VerdictSummary.model_validate(
        {
            "outcome": outcome,
            "drop": None,
            "upper_bound": None,
            "margin": 0.02,
            "confidence": 0.95,
            "documents": 0,
        }
    )


def published(registry: Registry, folder: Path, text: str, **changes: object) -> ReleaseRef:
    """A small release whose id follows from ``text``."""
    (folder / "weights").mkdir(parents=True, exist_ok=True)
    (folder / "weights" / "model.safetensors").write_text(text)
    (folder / "README.md").write_text("card")
    release = release_of(folder, **changes)
    registry.publish(release, files_of(folder, release), {})
    return release.ref
