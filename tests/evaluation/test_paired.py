from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import gammaln, xlogy

from evaluation.paired import (
    PairedTable,
    design_effect,
    documents_needed,
    margin_supported,
    mcnemar_p,
    mean_bounds,
    minimum_detectable_drop,
    non_inferiority_p,
    tango_bounds,
    tango_limits,
    tango_z,
)

counts = st.integers(0, 200)
tables = st.builds(PairedTable, counts, counts, counts, st.integers(1, 200))
confidences = st.sampled_from([0.8, 0.9, 0.95, 0.975, 0.999])


@pytest.mark.parametrize(
    ("table", "two_sided", "published", "digits"),
    [
        # The two that R ratesci (tests/testthat/test3.R) keeps under the name of Tango (1998).
        (PairedTable(43, 0, 1, 0), 0.90, (-0.096, 0.037), 3),
        (PairedTable(4, 9, 3, 16), 0.95, (-0.027, 0.390), 3),
        # Agresti and Min, Statistics in Medicine 24 (2005) 729-740, as in ratesci.
        (PairedTable(53, 16, 8, 9), 0.95, (-0.020, 0.207), 3),
        # Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014) 2850-2875, as in ratesci.
        (PairedTable(1, 1, 7, 12), 0.95, (-0.517, -0.026), 3),
        # R contingencytables (tests/testthat/test-ch8.R): Cavo et al. (2012), and all flips one way.
        (PairedTable(59, 6, 16, 80), 0.95, (-0.1240, -0.0054), 4),
        (PairedTable(0, 3, 0, 0), 0.95, (-0.1230, 1.0), 4),
        # R PropCIs, scoreci.mp(25, 28, 618).
        (PairedTable(565, 28, 25, 0), 0.90, (-0.0148, 0.0247), 4),
    ],
)
def test_tango_reproduces_published_intervals(table, two_sided, published, digits):
    """Two-sided intervals, to the digits printed."""
    assert tuple(round(bound, digits) for bound in tango_bounds(table, (1 + two_sided) / 2)) == published


@pytest.mark.parametrize("table", [(43, 0, 1, 0), (53, 16, 8, 9), (1, 1, 7, 12), (90, 5, 0, 5), (10, 0, 0, 0)])
@pytest.mark.parametrize("drop", [-0.3, -0.02, 0.01, 0.4])
def test_tango_z_agrees_with_brute_force(table, drop):
    """The closed form of the constrained estimate against a fine search for the largest likelihood."""
    table = PairedTable(*table)
    low, high = max(0.0, -drop), (1 - drop) / 2
    for _ in range(6):
        gained = np.linspace(low, high, 2001)
        same = np.maximum(1 - drop - 2 * gained, 0)
        likelihood = xlogy(table.lost, gained + drop) + xlogy(table.gained, gained)
        likelihood += xlogy(table.both + table.neither, same)
        best = int(np.argmax(likelihood))
        low, high = gained[max(best - 1, 0)], gained[min(best + 1, 2000)]
    variance = table.n * (2 * gained[best] + drop - drop**2)
    expected = (table.lost - table.gained - table.n * drop) / math.sqrt(variance)
    assert tango_z(table.lost, table.gained, table.n, drop) == pytest.approx(expected, rel=1e-6)


@given(tables, confidences)
def test_swapping_the_models_mirrors_the_bounds(table, confidence):
    swapped = PairedTable(table.both, table.gained, table.lost, table.neither)
    lower, upper = tango_bounds(table, confidence)
    assert tango_bounds(swapped, confidence) == pytest.approx((-upper, -lower), abs=1e-12)


@given(tables, confidences)
def test_bounds_hold_the_estimate_and_stay_in_range(table, confidence):
    lower, upper = tango_bounds(table, confidence)
    assert -1 <= lower <= table.drop <= upper <= 1


@given(tables, st.integers(2, 10), confidences)
def test_more_of_the_same_documents_narrow_the_bounds(table, times, confidence):
    many = PairedTable(*(times * c for c in (table.both, table.lost, table.gained, table.neither)))
    lower, upper = tango_bounds(table, confidence)
    lower_of_many, upper_of_many = tango_bounds(many, confidence)
    assert lower_of_many >= lower - 1e-12
    assert upper_of_many <= upper + 1e-12
    assert upper_of_many - lower_of_many < upper - lower


@given(tables, st.floats(-0.99, 0.98), st.floats(1e-3, 0.5))
def test_tango_z_falls_in_the_drop(table, drop, more):
    assume(drop + more < 1)
    at = tango_z(table.lost, table.gained, table.n, np.array([drop, drop + more]))
    assert at[1] < at[0]


@given(tables, st.floats(0.001, 0.5), st.sampled_from([0.9, 0.95, 0.99]), st.sampled_from([1.0, 2.5]))
def test_p_value_and_upper_bound_say_the_same(table, margin, confidence, effect):
    upper = tango_bounds(table, confidence, effect)[1]
    assume(abs(upper - margin) > 1e-9)
    assert (non_inferiority_p(table, margin, effect) < 1 - confidence) == (upper < margin)


@pytest.mark.parametrize("n", [1, 7, 100, 100_000])
def test_without_flips_the_upper_bound_is_wilsons(n):
    """Wilson, JASA 22 (1927): z^2 / (n + z^2), where the exact rule of three says 3 / n."""
    z2 = 1.6448536269514722**2
    lower, upper = tango_bounds(PairedTable(n, 0, 0, 0), 0.95)
    assert upper == pytest.approx(z2 / (n + z2), rel=1e-9)
    assert lower == pytest.approx(-upper, abs=1e-12)


def _errors(n, loss, gain):
    """Exact chance that each one-sided 95 % bound misses the true drop, over all tables of ``n`` documents."""
    lost, gained = (axis.ravel() for axis in np.meshgrid(np.arange(n + 1), np.arange(n + 1)))
    lost, gained = lost[lost + gained <= n], gained[lost + gained <= n]
    same = n - lost - gained
    chance = gammaln(n + 1) - gammaln(lost + 1) - gammaln(gained + 1) - gammaln(same + 1)
    chance += xlogy(lost, loss) + xlogy(gained, gain) + xlogy(same, max(0.0, 1 - loss - gain))
    lower, upper = tango_limits(lost, gained, n, 0.95)
    weights = np.exp(chance)
    return weights[lower > loss - gain + 1e-12].sum(), weights[upper < loss - gain - 1e-12].sum()


@pytest.mark.parametrize("n", [50, 100, 200])
@pytest.mark.parametrize("drop", [0.005, 0.02, 0.03, 0.1])
@pytest.mark.parametrize("gain", [0.0, 0.001, 0.01, 0.05, 0.15])
def test_a_pass_at_the_margin_is_as_rare_as_promised(n, drop, gain):
    lower_misses, upper_misses = _errors(n, drop + gain, gain)
    assert upper_misses <= 0.06
    assert lower_misses <= 0.10


@pytest.mark.parametrize(("loss", "gain"), [(0.05, 0.05), (0.10, 0.05), (0.2, 0.2)])
def test_error_is_nominal_with_a_few_flips_each_way(loss, gain):
    assert _errors(300, loss, gain) == pytest.approx((0.05, 0.05), abs=0.007)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_tiny_samples_never_promise_much(n):
    assert _errors(n, 0.5, 0.5)[1] <= 0.0626
    assert tango_bounds(PairedTable(n, 0, 0, 0), 0.95)[1] > 0.35


def test_a_full_confidence_bounds_nothing():
    assert tango_bounds(PairedTable(70, 10, 5, 15), 1.0) == pytest.approx((-1.0, 1.0), abs=1e-12)


def test_mcnemar_is_the_binomial_test_on_the_flips():
    """R contingencytables tests the mid-P value of the first, 0.034690: the exact one less the chance of the table."""
    assert mcnemar_p(PairedTable(59, 6, 16, 80)) - math.comb(22, 6) / 2**22 == pytest.approx(0.034690, abs=1e-6)
    assert mcnemar_p(PairedTable(5, 1, 1, 5)) == 1
    assert mcnemar_p(PairedTable(5, 0, 0, 5)) == 1
    assert mcnemar_p(PairedTable(5, 0, 5, 5)) == pytest.approx(2 / 2**5)


@pytest.mark.parametrize(
    ("flips", "margin", "drop"),
    [(0.03, 0.01, 0.0), (0.1, 0.02, 0.0), (0.3, 0.05, 0.0), (0.04, 0.02, 0.005), (0.1, 0.02, -0.01)],
)
@pytest.mark.parametrize("power", [0.8, 0.9])
def test_documents_needed_reach_the_power(flips, margin, drop, power):
    n = documents_needed(flips, margin, 0.95, power, drop)
    drawn = np.random.default_rng(0).multinomial(n, [(flips + drop) / 2, (flips - drop) / 2, 1 - flips], size=20_000)
    passed = tango_limits(drawn[:, 0], drawn[:, 1], n, 0.95)[1] < margin
    assert passed.mean() == pytest.approx(power, abs=0.02)


def test_without_flips_the_documents_needed_are_where_the_bound_meets_the_margin():
    n = documents_needed(0.0, 0.02, 0.95, 0.8)
    assert tango_bounds(PairedTable(n, 0, 0, 0), 0.95)[1] <= 0.02 < tango_bounds(PairedTable(n - 1, 0, 0, 0), 0.95)[1]


@given(st.floats(0, 0.5), st.floats(0.005, 0.5), st.sampled_from([0.9, 0.95]), st.sampled_from([0.5, 0.8, 0.95]))
def test_margin_supported_is_documents_needed_the_other_way_round(flips, margin, confidence, power):
    n = documents_needed(flips, margin, confidence, power)
    assume(n > 10)
    assert margin_supported(flips, n, confidence, power) <= margin + 1e-9
    assert margin_supported(flips, n - 1, confidence, power) >= margin - 1e-9


def test_a_margin_no_sample_can_support_is_everything():
    assert margin_supported(0.9, 1, 0.95, 0.9) == pytest.approx(1.0)


def test_minimum_detectable_drop_is_detected_with_the_power():
    flips, n = 0.1, 4000
    drop = minimum_detectable_drop(flips, n, 0.95, 0.8)
    assert drop is not None
    drawn = np.random.default_rng(0).multinomial(n, [(flips + drop) / 2, (flips - drop) / 2, 1 - flips], size=20_000)
    assert (tango_limits(drawn[:, 0], drawn[:, 1], n, 0.95)[0] > 0).mean() == pytest.approx(0.8, abs=0.015)


@pytest.mark.parametrize(("flips", "n"), [(0.1, 20), (0.0, 1000), (0.5, 1)])
def test_no_drop_is_detectable_with_too_few_flips(flips, n):
    assert minimum_detectable_drop(flips, n, 0.95, 0.8) is None


def test_mean_bounds_are_students():
    """Student, Biometrika 6 (1908): hours of sleep gained; mean 1.58, 95 % from 0.70 to 2.46 (R, t.test(sleep))."""
    gained = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert mean_bounds(gained, 0.975) == pytest.approx((0.7001142, 2.4598858), abs=1e-7)
    assert mean_bounds([0.3], 0.95) == (-math.inf, math.inf)
    assert mean_bounds([0.25, 0.25], 0.95) == (0.25, 0.25)


def test_clusters_of_one_are_no_clusters_and_clusters_of_copies_are_one_document_each():
    values = np.random.default_rng(0).normal(size=40)
    plain = mean_bounds(values, 0.95)
    assert mean_bounds(values, 0.95, clusters=np.arange(40)) == pytest.approx(plain)
    copies, names = np.repeat(values, 5), np.repeat([f"passage {i}" for i in range(40)], 5)
    assert mean_bounds(copies, 0.95, clusters=names) == pytest.approx(plain)
    assert mean_bounds(copies, 0.95)[1] < plain[1]


def test_design_effect_of_copies_is_their_number():
    values = np.repeat(np.random.default_rng(0).choice([-1.0, 0.0, 1.0], size=500), 4)
    assert design_effect(values, np.repeat(np.arange(500), 4)) == pytest.approx(4, rel=0.01)
    assert design_effect(values, np.arange(2000)) == pytest.approx(1)
    assert design_effect(np.zeros(12), [0] * 6 + [1] * 4 + [2] * 2) == pytest.approx((36 + 16 + 4) / 12)


def test_a_design_effect_counts_as_fewer_documents():
    quarter = tango_bounds(PairedTable(20, 2, 1, 2), 0.95)
    assert tango_bounds(PairedTable(80, 8, 4, 8), 0.95, 4.0) == pytest.approx(quarter)


@pytest.mark.parametrize(("shared", "naive_holds"), [(0.0, True), (0.6, False)])
def test_clustered_bound_keeps_its_error_where_the_naive_one_does_not(shared, naive_holds):
    """Passages of 5 documents that share their outcome with chance ``shared``; 10 % lost, 5 % gained."""
    random = np.random.default_rng(0)
    outcomes, chances, passages, size = np.array([1, -1, 0]), [0.10, 0.05, 0.85], 100, 5
    names = np.repeat(np.arange(passages), size)
    misses, naive_misses, runs = 0, 0, 400
    for _ in range(runs):
        passage = random.choice(outcomes, p=chances, size=(passages, 1))
        own = random.choice(outcomes, p=chances, size=(passages, size))
        drops = np.where(random.random((passages, size)) < shared, passage, own).ravel()
        lost, gained = int(np.sum(drops == 1)), int(np.sum(drops == -1))
        table = PairedTable(drops.size - lost - gained, lost, gained, 0)
        misses += tango_bounds(table, 0.95, design_effect(drops, names))[1] < 0.05
        naive_misses += tango_bounds(table, 0.95)[1] < 0.05
    assert misses / runs <= 0.09
    assert (naive_misses / runs <= 0.09) == naive_holds


def test_table_of_scores():
    table = PairedTable.of([1, 1, 1, 0, 0, 0.0], [1, 0, 0, 1, 0, 0])
    assert table == PairedTable(both=1, lost=2, gained=1, neither=2)
    assert (table.n, table.drop, table.flip_rate) == (6, pytest.approx(1 / 6), pytest.approx(0.5))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: PairedTable.of([1, 0.5], [1, 0]), "baseline scores: 0.5"),
        (lambda: PairedTable.of([1, 0], [1, math.nan]), "candidate scores: 2, of which 1 not finite"),
        (lambda: PairedTable.of([1, 0], [1]), "2 of the baseline, 1 of the candidate"),
        (lambda: PairedTable.of([], []), "want finite ones"),
        (lambda: PairedTable(0, 0, 0, 0), "one document or more"),
        (lambda: PairedTable(5, -1, 0, 0), "at least 0"),
        (lambda: tango_bounds(PairedTable(1, 0, 0, 0), 95), "confidence or power: 95"),
        (lambda: tango_bounds(PairedTable(1, 0, 0, 0), 0.95, 0.5), "design effect: 0.5"),
        (lambda: mean_bounds([0.1, math.inf], 0.95), "1 not finite"),
        (lambda: documents_needed(0.1, 0.01, 0.95, 0.8, drop=0.01), "margin: 0.01"),
        (lambda: documents_needed(0.01, 0.1, 0.95, 0.8, drop=0.02), "flip rate: 0.01"),
    ],
)
def test_nonsense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
