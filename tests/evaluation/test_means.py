from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.means import bootstrap_bounds
from evaluation.paired import mean_bounds

vectors = st.lists(st.floats(-5, 5), min_size=3, max_size=40).filter(lambda v: np.ptp(v) > 1e-3)


def test_same_seed_same_bounds():
    drops = np.random.default_rng(0).exponential(size=50)
    assert bootstrap_bounds(drops, 0.95, seed=3) == bootstrap_bounds(drops, 0.95, seed=3)
    assert bootstrap_bounds(drops, 0.95, seed=3) != bootstrap_bounds(drops, 0.95, seed=4)


def test_agrees_with_scipy():
    """scipy.stats.bootstrap(method="BCa"), up to the noise of resampling."""
    from scipy.stats import bootstrap

    drops = np.random.default_rng(1).exponential(size=60)
    theirs = bootstrap((drops,), np.mean, confidence_level=0.9, n_resamples=40_000, rng=np.random.default_rng(2))
    ours = bootstrap_bounds(drops, 0.95, seed=0, resamples=40_000)
    assert ours == pytest.approx(tuple(theirs.confidence_interval), abs=0.01)


@settings(max_examples=50)
@given(vectors)
def test_bounds_hold_the_mean(drops):
    lower, upper = bootstrap_bounds(drops, 0.95, seed=0, resamples=500)
    assert lower - 1e-9 <= np.mean(drops) <= upper + 1e-9


def test_close_to_students_on_symmetric_differences():
    drops = np.random.default_rng(0).normal(0.1, 1, size=2000)
    assert bootstrap_bounds(drops, 0.95, seed=0) == pytest.approx(mean_bounds(drops, 0.95), abs=0.004)


def test_one_sided_errors_are_nearer_nominal_than_percentiles_on_skewed_differences():
    """Lognormal differences, 40 of them: what BCa is for."""
    random = np.random.default_rng(0)
    truth, runs, misses, percentile_misses = math.exp(0.5), 1500, 0, 0
    for _ in range(runs):
        drops = random.lognormal(size=40)
        misses += bootstrap_bounds(drops, 0.95, seed=0, resamples=600)[1] < truth
        means = random.choice(drops, size=(600, 40)).mean(axis=1)
        percentile_misses += np.quantile(means, 0.95) < truth
    assert misses < 0.9 * percentile_misses
    assert misses / runs < 0.15


def test_clusters_of_copies_are_one_document_each():
    drops = np.random.default_rng(0).normal(size=60)
    copies, names = np.repeat(drops, 4), np.repeat(np.arange(60), 4)
    assert bootstrap_bounds(copies, 0.95, seed=0, clusters=names) == pytest.approx(
        bootstrap_bounds(drops, 0.95, seed=0), abs=1e-9
    )


def test_unequal_clusters_weigh_by_their_documents():
    drops, names = [0.0] * 90 + [1.0] * 10 + [0.5] * 20, [0] * 90 + [1] * 10 + [2] * 20
    lower, upper = bootstrap_bounds(drops, 0.9, seed=0, clusters=names)
    assert lower < np.mean(drops) < upper
    assert mean_bounds(drops, 0.9, names)[1] > mean_bounds(drops, 0.9)[1]


def test_corner_cases():
    assert bootstrap_bounds([0.3], 0.95, seed=0) == (-math.inf, math.inf)
    assert bootstrap_bounds([1.0, 2.0], 0.95, seed=0, clusters=["a", "a"]) == (-math.inf, math.inf)
    assert bootstrap_bounds([0.25, 0.25, 0.25], 0.95, seed=0) == (0.25, 0.25)
    with pytest.raises(ValueError, match="resamples: 100"):
        bootstrap_bounds([0.1, 0.2], 0.95, seed=0, resamples=100)
    with pytest.raises(ValueError, match="not finite"):
        bootstrap_bounds([0.1, math.nan], 0.95, seed=0)
