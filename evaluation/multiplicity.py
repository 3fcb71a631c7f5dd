"""Many tests, one error rate."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def holm(p_values: ArrayLike) -> list[float]:
    """Adjusted p-values, in the order given: reject those under alpha and the chance of any false rejection is alpha.

    Holds whatever the dependence between the tests. Holm, A simple sequentially rejective multiple test procedure,
    Scandinavian Journal of Statistics 6 (1979) 65-70.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError(f"p-values: {p.tolist()}, want each from 0 to 1")
    order = np.argsort(p, kind="stable")
    steps = np.arange(len(p), 0, -1) * p[order]
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted.tolist()
