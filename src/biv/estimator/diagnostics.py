"""Diagnostics of the labels and error bars of a fit, from its out-of-fold predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from biv._utils.typed_json import NonNegative
from biv.estimator.error_bars import Factor


class DiagnosticsJson(TypedDict):
    """JSON form of :class:`LabelDiagnostics`."""

    tau2: list[NonNegative]
    effective_sample_size: NonNegative
    factors: list[tuple[float | None, float | None, float | None]] | None
    reduced_chi_squared: list[tuple[float | None, float | None]] | None
    unknown_variance: list[NonNegative] | None


class LabelDiagnostics(NamedTuple):
    """Diagnostics of the labels of a fit; :class:`biv.BIVRegressor` documents each attribute.

    Every list has one entry per output. The last three are None without error bars.
    """

    tau2: list[float]
    effective_sample_size: float
    factors: list[Factor] | None
    reduced_chi_squared: list[tuple[float, float]] | None
    unknown_variance: list[float] | None

    @classmethod
    def joined(cls, parts: Sequence[LabelDiagnostics]) -> LabelDiagnostics:
        """Return the diagnostics of several outputs as those of one fit."""
        sizes = [(part.effective_sample_size, len(part.tau2)) for part in parts]

        def all_of(name: str) -> Any:
            lists = [getattr(part, name) for part in parts]
            return None if lists[0] is None else [value for values in lists for value in values]

        return cls(
            all_of("tau2"),
            float(np.average([size for size, _ in sizes], weights=[count for _, count in sizes])),
            *map(all_of, cls._fields[2:]),
        )

    @classmethod
    def from_json(cls, content: DiagnosticsJson) -> LabelDiagnostics:
        """Return the diagnostics stored in a file. JSON stores NaN as null."""

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
