from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.paired import tango_limits
from evaluation.sequential import looks, obrien_fleming_spent

fraction_lists = st.sets(st.integers(1, 99), max_size=5).map(lambda cents: [c / 100 for c in sorted({*cents, 100})])


@pytest.mark.parametrize(
    ("fractions", "alpha", "published", "within"),
    [
        # R ldbounds, five equal looks (its grid is coarse: the second is off by 1e-4, see the next test).
        ([0.2, 0.4, 0.6, 0.8, 1.0], 0.025, [4.8769, 3.3569, 2.6803, 2.2898, 2.0310], 1.5e-4),
        # R rpact, getDesignGroupSequential(typeOfDesign = "asOF", kMax = 3).
        ([1 / 3, 2 / 3, 1.0], 0.025, [3.710, 2.511, 1.993], 5e-4),
        # R gsDesign2, reference page of gs_b: unequal steps.
        ([0.5, 0.75, 1.0], 0.025, [2.962588, 2.359018, 2.014084], 2e-6),
        # Julia SeqBounds, README (a coarse grid too).
        ([0.25, 0.5, 0.75, 1.0], 0.05, [3.74955, 2.53993, 2.01604, 1.72014], 5e-5),
    ],
)
def test_published_boundaries(fractions, alpha, published, within):
    assert [look.z for look in looks(fractions, alpha)] == pytest.approx(published, abs=within)


def test_second_look_agrees_with_adaptive_quadrature():
    from scipy.integrate import quad
    from scipy.special import ndtr

    first, second = looks([0.2, 0.4], 0.025)

    def crosses_second(x):
        away = second.z * math.sqrt(0.4) - x * math.sqrt(0.2)
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * ndtr(-away / math.sqrt(0.2))

    crossed = quad(crosses_second, -12, first.z, points=[0, 2, 4], epsabs=1e-14, limit=200)[0]
    assert crossed == pytest.approx(second.spent - first.spent, rel=1e-7)


@settings(max_examples=20, deadline=None)
@given(fraction_lists, st.sampled_from([0.025, 0.05]))
def test_looks_spend_all_of_alpha_and_no_more(fractions, alpha):
    """Against Brownian motion drawn at the same fractions; early looks are checked through what they spend."""
    plan = looks(fractions, alpha)
    steps = np.sqrt(np.diff([0.0, *fractions]))
    paths = np.cumsum(np.random.default_rng(0).normal(size=(40_000, len(steps))) * steps, axis=1)
    crossed = np.maximum.accumulate(paths > np.array([k.z * math.sqrt(k.fraction) for k in plan]), axis=1)
    assert crossed.mean(axis=0) == pytest.approx([k.spent for k in plan], abs=0.005)
    assert plan[-1].spent == pytest.approx(alpha)


@settings(max_examples=20, deadline=None)
@given(fraction_lists)
def test_a_boundary_depends_on_earlier_looks_only(fractions):
    whole = looks(fractions, 0.05)
    for k in range(1, len(fractions)):
        assert looks(fractions[:k], 0.05) == whole[:k]


@settings(max_examples=20, deadline=None)
@given(fraction_lists)
def test_more_looks_cost_confidence_at_the_end(fractions):
    last = looks(fractions, 0.05)[-1]
    assert last.z >= looks([1.0], 0.05)[0].z - 1e-9
    assert last.confidence == pytest.approx(0.5 * math.erfc(-last.z / math.sqrt(2)))


def test_close_looks_are_integrated_as_finely():
    """A look a thousandth before another spends as the one does: the pair ends where either alone would."""
    alone, close = looks([0.5, 1.0], 0.05)[-1], looks([0.5, 0.999, 1.0], 0.05)[-1]
    assert 0 < close.z - alone.z < 0.05


def test_spending_rises_to_alpha():
    spent = [obrien_fleming_spent(f, 0.05) for f in np.linspace(0.01, 1, 50)]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(0.05)
    assert spent[0] < 1e-20


def test_four_looks_at_documents_pass_a_bad_candidate_as_rarely_as_one():
    """Drop exactly at the margin, 1000 documents a look: what the gate does, 20,000 times."""
    margin, flips, per_look, runs = 0.02, 0.10, 1000, 20_000
    random = np.random.default_rng(0)
    lost, gained, passed = np.zeros(runs), np.zeros(runs), np.zeros(runs, dtype=bool)
    naive = passed.copy()
    for k, look in enumerate(looks([0.25, 0.5, 0.75, 1.0], 0.05), start=1):
        drawn = random.multinomial(per_look, [(flips + margin) / 2, (flips - margin) / 2, 1 - flips], size=runs)
        lost, gained = lost + drawn[:, 0], gained + drawn[:, 1]
        passed |= tango_limits(lost, gained, k * per_look, look.confidence)[1] < margin
        naive |= tango_limits(lost, gained, k * per_look, 0.95)[1] < margin
    assert passed.mean() == pytest.approx(0.05, abs=0.006)
    assert naive.mean() > 0.10


@pytest.mark.parametrize("fractions", [[], [0.0, 1.0], [0.5, 0.5], [0.7, 0.6], [0.5, 1.1]])
def test_fractions_out_of_order_are_refused(fractions):
    with pytest.raises(ValueError, match="want rising"):
        looks(fractions, 0.05)


def test_alpha_out_of_range_is_refused():
    with pytest.raises(ValueError, match="alpha: 5"):
        looks([1.0], 5)
