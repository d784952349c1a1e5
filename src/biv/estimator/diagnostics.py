"""What the out-of-fold predictions of a fit say about its labels and their error bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from biv._utils.typed_json import NonNegative
from biv.estimator.error_bars import Factor


class DiagnosticsJson(TypedDict):
    """A :class:`LabelDiagnostics` in JSON."""

    tau2: list[NonNegative]
    effective_sample_size: NonNegative
    factors: list[tuple[float | None, float | None, float | None]] | None
    reduced_chi_squared: list[tuple[float | None, float | None]] | None
    unknown_variance: list[NonNegative] | None


class LabelDiagnostics(NamedTuple):
    """Estimates about the labels of a fit; see the attributes of :class:`biv.BIVRegressor`.

    Every list has one entry per output. The last three are None without error bars.
    """

    tau2: list[float]
    effective_sample_size: float
    factors: list[Factor] | None
    reduced_chi_squared: list[tuple[float, float]] | None
    unknown_variance: list[float] | None

    @classmethod
    def joined(cls, each: Sequence[LabelDiagnostics]) -> LabelDiagnostics:
        """Return the diagnostics of several outputs as those of one fit."""
        sizes = [(own.effective_sample_size, len(own.tau2)) for own in each]

        def all_of(name: str) -> Any:
            lists = [getattr(own, name) for own in each]
            return None if lists[0] is None else [value for values in lists for value in values]

        return cls(
            all_of("tau2"),
            float(np.average([size for size, _ in sizes], weights=[count for _, count in sizes])),
            *map(all_of, cls._fields[2:]),
        )

    @classmethod
    def from_json(cls, content: DiagnosticsJson) -> LabelDiagnostics:
        """Return the diagnostics that a file holds; null, which JSON has for NaN, is NaN again."""

        def rows(kind: Any, values: Any) -> Any:
            if values is None:
                return None
            return [kind(np.nan if x is None else x for x in row) for row in values]

        return cls(
            content["tau2"],
            content["effective_sample_size"],
            rows(lambda row: Factor(*row), content["factors"]),
            rows(tuple, content["reduced_chi_squared"]),
            content["unknown_variance"],
        )
