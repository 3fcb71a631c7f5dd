"""Where Engineworks keeps things on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """``$ENGINEWORKS_HOME`` (default ``~/.engineworks``): build store, tool environments, packages, local registry."""

    root: Path

    @classmethod
    def find(cls, given: Path | None = None) -> Home:
        return cls(
            (given or Path(os.environ.get("ENGINEWORKS_HOME") or Path.home() / ".engineworks")).expanduser().absolute()
        )

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def registry_url(self) -> str:
        """``$ENGINEWORKS_REGISTRY``, else a directory here."""
        return os.environ.get("ENGINEWORKS_REGISTRY") or f"file://{self.root / 'registry'}"
