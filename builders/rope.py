"""Rotary position embeddings as a config names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULT_ROPE_BASE = 10000.0
"""transformers' own default."""


def rope_of(original: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
    """Base and scaling, as transformers 4 (``rope_theta``, ``rope_scaling``) or 5 (``rope_parameters``) writes them."""
    merged: dict[str, Any] = {**(original.get("rope_scaling") or {}), **(original.get("rope_parameters") or {})}
    base = float(merged.pop("rope_theta", None) or original.get("rope_theta") or DEFAULT_ROPE_BASE)
    kind = merged.pop("rope_type", None) or merged.pop("type", None) or "default"
    merged.pop("type", None)
    return base, {} if kind == "default" else {"rope_type": kind, **merged}
