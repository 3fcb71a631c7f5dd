"""Statistics of two models answering the same documents, right or wrong.

Sign throughout: a *drop* is baseline minus candidate, so a positive drop is a loss and the gate asks for a small upper
bound. Bounds are one-sided at ``confidence``; both at 0.975 make a two-sided 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_HALVINGS = 52
"""Bisections of an interval no longer than 2: down to the spacing of doubles near 1."""


@dataclass(frozen=True)
class PairedTable:
    """Documents by who answered them rightly: the 2x2 table n11, n10, n01, n00."""

    both: int
    lost: int
    """Right by the baseline only."""
    gained: int
    """Right by the candidate only."""
    neither: int

    def __post_init__(self) -> None:
        if min(self.both, self.lost, self.gained, self.neither) < 0 or self.n == 0:
            raise ValueError(f"paired table: {self}, want counts of at least 0 and one document or more")

    @classmethod
    def of(cls, baseline: ArrayLike, candidate: ArrayLike) -> PairedTable:
        """From two vectors of 0 and 1 of one length, paired by position. Raises ``ValueError`` on anything else."""
        before, after = _right_or_wrong("baseline", baseline), _right_or_wrong("candidate", candidate)
        if len(before) != len(after):
            raise ValueError(f"scores: {len(before)} of the baseline, {len(after)} of the candidate, want as many")
        both, right_before, right_after = (int(np.count_nonzero(v)) for v in (before & after, before, after))
        return cls(both, right_before - both, right_after - both, len(before) + both - right_before - right_after)

    @property
    def n(self) -> int:
        return self.both + self.lost + self.gained + self.neither

    @property
    def drop(self) -> float:
        """Accuracy of the baseline minus that of the candidate."""
        return (self.lost - self.gained) / self.n

    @property
    def flip_rate(self) -> float:
        """Share of documents that one answers rightly and the other wrongly."""
        return (self.lost + self.gained) / self.n


def tango_z(lost: ArrayLike, gained: ArrayLike, n: ArrayLike, drop: ArrayLike) -> Floats:
    """Score statistic of the hypothesis that the true drop is ``drop``; standard normal under it, falling in ``drop``.

    Tango, Equivalence test and confidence interval for the difference in proportions for the paired-sample design,
    Statistics in Medicine 17 (1998) 891-908. Counts need not be whole. Arguments broadcast.
    """
    lost, gained, n, drop = (np.asarray(a, dtype=np.float64) for a in (lost, gained, n, drop))
    variance = n * _null_variance(lost, gained, n, drop)
    difference = lost - gained - n * drop
    with np.errstate(divide="ignore", invalid="ignore"):  # no variance: certain, either way
        return np.where(difference == 0, 0.0, difference / np.sqrt(np.maximum(variance, 0.0)))


def tango_limits(lost: ArrayLike, gained: ArrayLike, n: ArrayLike, confidence: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the drops of many tables at once (arguments broadcast), by inverting :func:`tango_z`.

    Near nominal, not exact: at a nominal 5 %, the upper bound on a drop from 0.5 to 10 %, on which a PASS rests, errs
    in at most 6 % of cases with 50 documents or more. The lower bound on it errs in up to 10 % while flips are a
    handful, for the score is skewed there (as in Wilson's interval, which this is when all flips go one way).
    """
    z = normal_quantile(confidence)
    lost, gained, n = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (lost, gained, n)))
    estimate = (lost - gained) / n
    lower = _bisect(lambda drop: tango_z(lost, gained, n, drop) > z, np.full_like(estimate, -1.0), estimate)
    upper = _bisect(lambda drop: tango_z(lost, gained, n, drop) > -z, estimate, np.full_like(estimate, 1.0))
    return lower, upper


def tango_bounds(table: PairedTable, confidence: float, design_effect: float = 1.0) -> tuple[float, float]:
    """Lower and upper bound on the drop, each one-sided at ``confidence``.

    ``design_effect`` (see :func:`design_effect`) shrinks the table to its effective size when documents come in
    clusters: Rao and Scott, A simple method for the analysis of clustered binary data, Biometrics 48 (1992) 577-585.
    """
    lower, upper = tango_limits(*_effective(table, design_effect), confidence)
    return float(lower), float(upper)


def non_inferiority_p(table: PairedTable, margin: float, design_effect: float = 1.0) -> float:
    """One-sided p-value of "the drop is at least ``margin``": under 5 % where the upper 95 % bound is under it."""
    return 0.5 * math.erfc(-float(tango_z(*_effective(table, design_effect), margin)) / math.sqrt(2))


def mcnemar_p(table: PairedTable) -> float:
    """Exact two-sided p-value of "no difference": a binomial test on the documents that changed sides."""
    from scipy.special import bdtr

    flips, fewer = table.lost + table.gained, min(table.lost, table.gained)
    return min(1.0, 2 * float(bdtr(fewer, flips, 0.5)))


def design_effect(differences: ArrayLike, clusters: ArrayLike) -> float:
    """How many clustered documents are worth an independent one: robust variance of the mean over the plain one.

    At least 1; ``clusters`` as in :func:`mean_bounds`. When all differences are equal there is no variance to compare,
    and each cluster is taken to move as one: the sum of squared sizes over the documents (Kish, Survey Sampling, 1965,
    at an intraclass correlation of 1).
    """
    values = finite("differences", differences)
    plain = _variance_of_mean(values, None)[0]
    if plain == 0:
        sizes = np.unique(np.asarray(clusters), return_counts=True)[1]
        return float(np.sum(sizes**2) / len(values))
    return max(1.0, _variance_of_mean(values, clusters)[0] / plain)


def mean_bounds(differences: ArrayLike, confidence: float, clusters: ArrayLike | None = None) -> tuple[float, float]:
    """One-sided bounds on the mean of paired differences of any score, by Student's t.

    ``clusters`` names the cluster of each document, e.g. the passage it shares with others: the variance is then robust
    to any dependence inside a cluster (Miller, Adding Error Bars to Evals, arXiv 2411.00640; here times
    G / (G - 1) for G clusters), with G - 1 degrees of freedom. One document or cluster bounds nothing, and differences
    that are all equal give bounds of no width.
    """
    from scipy.special import stdtrit

    normal_quantile(confidence)
    values = finite("differences", differences)
    mean = float(values.mean())
    variance, groups = _variance_of_mean(values, clusters)
    if groups < 2:
        return -math.inf, math.inf
    reach = float(stdtrit(groups - 1, confidence)) * math.sqrt(variance) if variance else 0.0
    return mean - reach, mean + reach


def documents_needed(flip_rate: float, margin: float, confidence: float, power: float, drop: float = 0.0) -> int:
    """Documents with which a candidate whose true drop is ``drop`` passes the margin with ``power``.

    n = ((z_confidence s0 + z_power s1) / (margin - drop))^2, where s1^2 = flip_rate - drop^2 is the true variance of
    one paired difference and s0^2 the one the score test expects at the margin: Nam, Establishing equivalence of two
    treatments and sample size requirements in matched-pairs design, Biometrics 53 (1997) 1422-1430. Multiply by the
    design effect for clustered documents.
    """
    _check_plan(flip_rate, margin, drop)
    reach = _planned_reach(flip_rate, drop, margin, confidence, power)
    return max(1, math.ceil((reach / (margin - drop)) ** 2))


def margin_supported(flip_rate: float, documents: int, confidence: float, power: float, drop: float = 0.0) -> float:
    """The smallest margin that ``documents`` can decide, :func:`documents_needed` the other way round; 1 if none."""
    _check_plan(flip_rate, 1.0, drop)

    def too_small(margin: Floats) -> NDArray[np.bool_]:
        reach = _planned_reach(flip_rate, drop, float(margin), confidence, power)
        return np.asarray(reach > (margin - drop) * math.sqrt(documents))

    return float(_bisect(too_small, np.asarray(drop), np.asarray(1.0)))


def minimum_detectable_drop(flip_rate: float, documents: int, confidence: float, power: float) -> float | None:
    """The smallest true drop that McNemar's test (one-sided at ``confidence``) tells from none with ``power``.

    Solves drop sqrt(n) = z_confidence sqrt(f) + z_power sqrt(f - drop^2) for a flip rate f: Connor, Sample size for
    testing differences in proportions for the paired-sample design, Biometrics 43 (1987) 207-211. None if even the
    largest drop with so few flips would be missed.
    """
    _check_plan(flip_rate, 1.0, 0.0)
    a, b = normal_quantile(confidence), normal_quantile(power)
    under_root = flip_rate * b * b * (documents + b * b - a * a)
    if under_root < 0:
        return None
    drop = (a * math.sqrt(documents * flip_rate) + math.sqrt(under_root)) / (documents + b * b)
    return drop if 0 < drop <= flip_rate else None


def normal_quantile(confidence: float) -> float:
    """Standard normal quantile of a one-sided confidence or power, infinite at 1. Raises ``ValueError`` below 0.5."""
    if not 0.5 <= confidence <= 1:
        raise ValueError(f"confidence or power: {confidence}, want from 0.5 to 1, e.g. 0.95")
    return math.inf if confidence == 1 else NormalDist().inv_cdf(confidence)


def finite(name: str, scores: ArrayLike) -> Floats:
    """The scores as a vector. Raises ``ValueError`` if there are none or one is not finite."""
    values = np.asarray(scores, dtype=np.float64)
    if len(values) == 0 or not np.all(np.isfinite(values)):
        raise ValueError(f"{name}: {len(values)}, of which {np.sum(~np.isfinite(values))} not finite, want finite ones")
    return values


def _null_variance(lost: Floats, gained: Floats, n: Floats, drop: Floats) -> Floats:
    """Variance of one paired difference if the true drop is ``drop``, by the likeliest probability of ``gained``."""
    b = -lost - gained + (2 * n - lost + gained) * drop
    minus_4ac = 8 * n * gained * drop * (1 - drop)
    gained_probability = (np.sqrt(np.maximum(b * b + minus_4ac, 0)) - b) / (4 * n)
    return 2 * gained_probability + drop * (1 - drop)


def _planned_reach(flip_rate: float, drop: float, margin: float, confidence: float, power: float) -> float:
    """What the standard errors of one document, at the margin and in truth, add up to."""
    lost, gained = (np.asarray((flip_rate + sign * drop) / 2) for sign in (1, -1))
    at_margin = math.sqrt(float(_null_variance(lost, gained, np.asarray(1.0), np.asarray(margin))))
    return normal_quantile(confidence) * at_margin + normal_quantile(power) * math.sqrt(flip_rate - drop * drop)


def _check_plan(flip_rate: float, margin: float, drop: float) -> None:
    if not abs(drop) <= flip_rate <= 1:
        raise ValueError(f"flip rate: {flip_rate}, want from the size of the drop ({abs(drop)}) to 1")
    if not drop < margin <= 1:
        raise ValueError(f"margin: {margin}, want above the true drop ({drop}) and at most 1")


def _effective(table: PairedTable, design_effect: float) -> tuple[float, float, float]:
    if design_effect < 1:
        raise ValueError(f"design effect: {design_effect}, want at least 1")
    return table.lost / design_effect, table.gained / design_effect, table.n / design_effect


def _variance_of_mean(values: Floats, clusters: ArrayLike | None) -> tuple[float, int]:
    """Cluster-robust variance of the mean, and how many clusters; without ``clusters`` each value is its own."""
    residuals = values - values.mean()
    if clusters is not None:
        residuals = np.bincount(np.unique(np.asarray(clusters), return_inverse=True)[1], weights=residuals)
    groups = len(residuals)
    if groups < 2:
        return 0.0, groups
    return float(np.sum(residuals**2)) * groups / (groups - 1) / len(values) ** 2, groups


def _right_or_wrong(name: str, scores: ArrayLike) -> NDArray[np.bool_]:
    values = finite(f"{name} scores", scores)
    right = values == 1
    if strange := values[~right & (values != 0)].tolist():
        raise ValueError(f"{name} scores: {strange[0]}, want 0 or 1 (bound other scores with mean_bounds)")
    return right


def _bisect(below: Callable[[Floats], NDArray[np.bool_]], low: Floats, high: Floats) -> Floats:
    """Where ``below`` turns from true to false between ``low`` and ``high``; the end nearer to it if it does not."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        under = below(middle)
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return (low + high) / 2
