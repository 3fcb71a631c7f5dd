"""Bootstrap bounds on a mean paired difference of scores that are not just right or wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.paired import finite, normal_quantile

Floats = NDArray[np.float64]

_DRAWS_AT_ONCE = 4_000_000
"""Documents drawn before they are summed: some 64 MB, whatever the number of resamples."""
_IN_THE_TAIL = 10
"""Resamples that have to lie beyond a bound for its place among them to mean anything."""


def bootstrap_bounds(
    differences: ArrayLike, confidence: float, *, seed: int, resamples: int = 10_000, clusters: ArrayLike | None = None
) -> tuple[float, float]:
    """Lower and upper bound on the mean difference, each one-sided at ``confidence``.

    Bias-corrected and accelerated (BCa), since the gate reads one side only: a one-sided percentile bound errs by order
    1/sqrt(n) on skewed differences, a BCa bound by order 1/n (Efron, Better bootstrap confidence intervals, JASA 82
    (1987) 171-185). With ``clusters`` whole clusters are drawn and the mean is over their documents. The same seed and
    NumPy give the same bounds. Fewer than two documents or clusters bound nothing; no spread bounds without width.
    """
    from scipy.special import ndtr, ndtri

    z = normal_quantile(confidence)
    if resamples * (1 - confidence) < _IN_THE_TAIL:
        raise ValueError(
            f"resamples: {resamples} leave under {_IN_THE_TAIL} beyond a confidence of {confidence}: "
            "want more of them, or mean_bounds, which has no such limit"
        )
    sums, sizes = _by_cluster(finite("differences", differences), clusters)
    if len(sums) < 2:
        return -math.inf, math.inf
    mean = float(sums.sum() / sizes.sum())
    without_one = (sums.sum() - sums) / (sizes.sum() - sizes)
    influence = without_one.mean() - without_one
    spread = float(np.sum(influence**2))
    if spread == 0:
        return mean, mean
    means = np.concatenate(list(_resampled_means(sums, sizes, seed, resamples)))
    # Ties count half: scores on a coarse grid tie with the mean often.
    below = (np.count_nonzero(means < mean) + np.count_nonzero(means <= mean)) / 2
    bias = float(ndtri(min(max(below, 0.5), resamples - 0.5) / resamples))
    acceleration = float(np.sum(influence**3)) / (6 * spread * math.sqrt(spread))
    tails = [float(ndtr(bias + (bias + side) / (1 - acceleration * (bias + side)))) for side in (-z, z)]
    lower, upper = np.quantile(means, tails).tolist()
    return lower, upper


def _by_cluster(values: Floats, clusters: ArrayLike | None) -> tuple[Floats, Floats]:
    """Sum and number of the documents of each cluster; without ``clusters`` each document is its own."""
    if clusters is None:
        return values, np.ones_like(values)
    labels = np.unique(np.asarray(clusters), return_inverse=True)[1]
    return np.bincount(labels, weights=values).astype(np.float64), np.bincount(labels).astype(np.float64)


def _resampled_means(sums: Floats, sizes: Floats, seed: int, resamples: int) -> Iterator[Floats]:
    random = np.random.default_rng(seed)
    equal = bool(np.all(sizes == sizes[0]))
    at_once = max(1, _DRAWS_AT_ONCE // len(sums))
    for start in range(0, resamples, at_once):
        drawn = random.integers(0, len(sums), size=(min(at_once, resamples - start), len(sums)), dtype=np.int32)
        total = sums[drawn].sum(axis=1)
        yield total / (len(sums) * sizes[0] if equal else sizes[drawn].sum(axis=1))
