"""Do the stored numbers mean the original's weights? Shapes and finite scales do not tell.

Some rows of every layer are read back and laid beside the original's; what differs must be no more than rounding
costs. Methods that move scales between layers multiply whole columns (SmoothQuant) or columns and rows (AWQ): the best
factor of each is taken out first, for these and no others. A scale that belongs elsewhere, exchanged layers or a wrong
order of bits leave far more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from builders.integrity.findings import Finding
from builders.integrity.formats import rows_of, stored
from builders.model_facts import Linear
from builders.tensor_values import Floats, TensorFiles
from recipes.variants import Awq, Int8, Variant, W4A8Awq

ROWS = 64
"""Rows read of each layer, evenly spaced."""
LARGEST = {"float": 0.08, "int": 0.15}
LARGEST_4_BIT = 0.4
"""Share of the Frobenius norm that rounding may cost, by kind of storage. Measured: FP8 0.026, INT8 0.01 to 0.05,
4 bits in groups 0.09 to 0.17. Another layer's weights are off by more than 0.9."""


def findings(
    source: TensorFiles, output: TensorFiles, linears: Iterable[Linear], variant: Variant
) -> Iterator[Finding]:
    by_row, by_column = _free(variant)
    for linear in linears:
        name = f"{linear.name}.weight"
        found = stored(output, linear.name)
        if found is None or name not in source:
            continue
        count = min(ROWS, linear.out_features)
        rows = np.linspace(0, linear.out_features - 1, count).astype(np.intp)
        try:
            values = rows_of(output, found, rows)
        except (KeyError, ValueError, IndexError) as error:
            yield _finding(linear.name, f"can't be read back ({error})", "numbers and scales that fit each other")
            continue
        if values is None:
            continue
        original = source.values(name, rows)
        if values.shape != original.shape:
            continue  # said already: shapes
        error = unlike(values, original, by_row=by_row, by_column=by_column)
        largest = LARGEST.get(found.kind, LARGEST_4_BIT)
        if not error <= largest:
            yield _finding(linear.name, f"{error:.2f} of its size away from the original", f"at most {largest}")


def _free(variant: Variant) -> tuple[bool, bool]:
    """Whether the method may have multiplied whole rows, and whole columns."""
    if isinstance(variant, Awq | W4A8Awq):
        return True, True
    return False, isinstance(variant, Int8) and variant.smoothing_strength is not None


def unlike(values: Floats, original: Floats, *, by_row: bool, by_column: bool) -> float:
    """Relative error, the best factor of each row and column taken out where that is allowed. NaN if a value is."""
    columns = np.ones(original.shape[1], np.float32)
    rows = np.ones((original.shape[0], 1), np.float32)
    for _ in range(3 if by_row and by_column else 1):
        if by_row:
            scaled = original * columns
            rows = _ratio((values * scaled).sum(1, keepdims=True), (scaled * scaled).sum(1, keepdims=True))
        if by_column:
            scaled = original * rows
            columns = _ratio((values * scaled).sum(0), (scaled * scaled).sum(0))
    size = float(np.linalg.norm(original * rows * columns))
    return float(np.linalg.norm(values - original * rows * columns)) / size if size else 1.0


def _ratio(over: Floats, under: Floats) -> Floats:
    """The best factor. No method turns signs round."""
    return np.maximum(np.divide(over, under, out=np.zeros_like(over), where=under > 0), 0)


def _finding(layer: str, seen: str, wanted: str) -> Finding:
    return Finding(check="values", subject=layer, seen=seen, wanted=wanted)
