"""Figures of the serving benchmark, by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def benchmark() -> Any:
    places = [str(ROOT / "builders" / "workers"), str(ROOT / "evaluation" / "workers")]
    sys.path[:0] = places
    try:
        spec = importlib.util.spec_from_file_location("serve_benchmark", places[1] + "/serve_benchmark.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["serve_benchmark"] = module
        spec.loader.exec_module(module)
        return module
    finally:
        for place in places:
            sys.path.remove(place)


def test_figures(benchmark: Any) -> None:
    answers = [benchmark.Answer(0.1, 1.1, 11), benchmark.Answer(0.3, 2.3, 11)]
    found = benchmark.figures(answers, 2.0)
    assert found["output_tokens_per_s"] == 11.0
    assert found["requests_per_s"] == 1.0
    assert found["ttft_ms"]["p50"] == 200.0
    assert found["tpot_ms"] == {"p50": 150.0, "p90": 190.0, "p99": 199.0}
    assert found["e2e_ms"]["p50"] == 1700.0


def test_nothing_answered(benchmark: Any) -> None:
    assert benchmark.figures([], 1.0)["ttft_ms"] is None
    assert benchmark.percentiles([0.5]) == {"p50": 500.0, "p90": 500.0, "p99": 500.0}
