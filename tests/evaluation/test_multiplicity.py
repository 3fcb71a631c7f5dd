from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.multiplicity import holm

p_values = st.lists(st.floats(0, 1), max_size=12)


def test_worked_example():
    """R, p.adjust(c(0.01, 0.02, 0.03, 0.04), "holm"), and out of order with a tie."""
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.5, 0.005, 0.5]) == pytest.approx([1.0, 0.015, 1.0])
    assert holm([]) == []


@given(p_values, st.floats(0.001, 0.2))
def test_rejects_what_stepping_down_rejects(p, alpha):
    rejected: set[int] = set()
    for step, index in enumerate(np.argsort(p, kind="stable")):
        if p[index] * (len(p) - step) > alpha:
            break
        rejected.add(int(index))
    assert {i for i, adjusted in enumerate(holm(p)) if adjusted <= alpha} == rejected


@given(p_values)
def test_between_no_correction_and_bonferroni(p):
    for raw, adjusted in zip(p, holm(p), strict=True):
        assert raw <= adjusted <= min(1.0, len(p) * raw)


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="want each from 0 to 1"):
        holm([0.1, float("nan")])
