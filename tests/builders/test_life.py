"""What counts as a degenerate answer."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

WORKERS = Path(__file__).parents[2] / "builders" / "workers"


@pytest.fixture(scope="module")
def life() -> Any:
    sys.path.insert(0, str(WORKERS))
    try:
        spec = importlib.util.spec_from_file_location("life_worker", WORKERS / "life.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(WORKERS))


def test_nothing_and_loops_are_degenerate(life: Any) -> None:
    assert life.degenerate([])
    assert life.degenerate([5] * 24)
    assert life.degenerate([9, 8, 7, 6] * 3 + [1, 2] * 8)
    assert life.degenerate([1, 2, 3] * 8)
    assert not life.degenerate(list(range(24)))
    assert not life.degenerate([1, 2])  # a short answer that ends


@given(ids=st.lists(st.integers(0, 50), min_size=16, max_size=40, unique=True))
def test_text_without_repetition_is_not(life: Any, ids: list[int]) -> None:
    assert not life.degenerate(ids)
