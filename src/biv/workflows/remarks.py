"""Remarks on rows and error bars of a table that the user should look at."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv._utils.messages import shortened
from biv._utils.rank_correlation import ranks
from biv._utils.wording import ADVICE_OPTIONS, Message, Setting, Wording, render_text
from biv.estimator import findings
from biv.preprocessing.encoder import FeatureEncoder
from biv.tables import LabelledTable
from biv.workflows.evidence_parts import RemarkRecord
from biv.workflows.label_correlation import (
    MIN_CORRELATION,
    chance_and_example,
    label_correlation,
    larger_labels,
)

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

RELATED_ROWS = 20_000  # largest number of rows used for rank correlations
HUGE = 100.0  # multiple of the label variance above which a label says next to nothing
COMMON, FEW_VALUES = 0.05, 10  # fraction of rows with one value, in a column of more values
FAR_OFF = 5.0  # standard deviations
ROWS_SHOWN, COLUMNS_SHOWN = 5, 3


class Remark(NamedTuple):
    """Something in a table that the user should look at.

    Attributes
    ----------
    kind : str
        Kind of the remark, such as "zero" or "far off".
    text : str
        The remark as one sentence or more, without the final mark.
    rows : str
        The first few rows that it is about; empty if it is about no rows in particular.
    """

    kind: str
    text: str
    rows: str = ""

    def record(self, wording: Wording = ADVICE_OPTIONS) -> RemarkRecord:
        """Return the remark as files and reports keep it, worded for the command."""
        return RemarkRecord(kind=self.kind, text=render_text(self.text, wording), rows=self.rows)


def sample(rows: int, most: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the positions of all rows, or of `most` random ones, in order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def remarks_on(
    table: LabelledTable,
    variance: Floats,
    label_variance: float,
    places: Places,
    predicted: Floats,
    tau2: float,
    *,
    seed: int,
) -> list[Remark]:
    """Return what the user should look at in a table.

    Parameters
    ----------
    table : LabelledTable
        A table with error bars.
    variance : (N,) array
        Its σ², with the median in place of unknown ones.
    label_variance : float
        Variance of the labels without their noise.
    places : (n,) integer array
        Positions of the rows that a fit predicts without having been trained on them.
    predicted : (n,) array
        Predictions for these rows.
    tau2 : float
        Variance of the fit's own error.
    seed : int
        Seed that draws the rows used for rank correlations, if there are many.
    """
    given = table.variance
    assert given is not None
    return [
        *_odd_values(table, given, label_variance),
        *_stray_labels(table),
        *_common_values(table, given),
        *_related(table, variance, seed),
        *_far_off(table, variance, places, predicted, tau2),
    ]


def _rows(table: LabelledTable, which: Any) -> str:
    places = np.flatnonzero(which)
    return table.where(*places[:ROWS_SHOWN]) + (", ..." if len(places) > ROWS_SHOWN else "")


def _odd_values(table: LabelledTable, variance: Floats, label_variance: float) -> list[Remark]:
    finite = np.isfinite(variance)
    odd = [
        ("unknown", np.isnan(variance), "{labels_have} no error bar"),
        ("ignored", np.isinf(variance), "{labels_have} an infinite error bar, and {are} ignored"),
        (
            "zero",
            variance == 0,
            "{labels_have} an error bar of 0, and {are} trusted as far as ε allows. Was that "
            "measured, or does 0 stand for unknown",
        ),
        (
            "huge",
            finite & (variance > HUGE * label_variance),
            "{labels_have} a σ² of more than {huge:g} times the label variance, and {say} next to "
            "nothing",
        ),
    ]
    return [
        Remark(kind, text.format(**_numbered(which.sum()), huge=HUGE), _rows(table, which))
        for kind, which, text in odd
        if which.any()
    ]


def _labels(count: Any) -> str:
    return "1 label" if count == 1 else f"{int(count):,} labels"


def _numbered(count: Any) -> dict[str, str]:
    """Return words of a sentence about so many labels, in singular or plural."""
    if count == 1:
        return {"labels_have": "1 label has", "are": "is", "say": "says"}
    return {"labels_have": f"{_labels(count)} have", "are": "are", "say": "say"}


def _common_values(table: LabelledTable, variance: Floats) -> list[Remark]:
    known = variance[np.isfinite(variance)]
    values, counts = np.unique(known, return_counts=True)
    if len(values) == 1:
        text = "All error bars are equal, so weighting by them changes nothing"
        return [Remark("equal", text)]
    often = [k for k in np.argsort(-counts) if counts[k] >= max(COMMON * len(known), 3)]
    if len(values) <= FEW_VALUES or not often:
        return []
    shown = ", ".join(
        f"{values[k]:.4g} (σ {np.sqrt(values[k]):.4g}; {counts[k] / len(known):.0%})"
        for k in often[:COLUMNS_SHOWN]
    )
    more = " and others" if len(often) > COLUMNS_SHOWN else ""
    text = (
        f"{_labels(counts[often].sum())} share a few values of σ², while the others differ: "
        f"{shown}{more}. Do these values stand for something"
    )
    return [Remark("duplicated", text, _rows(table, np.isin(variance, values[often])))]


def _stray_labels(table: LabelledTable) -> list[Remark]:
    """Find one value that several labels share, far from all others, such as -99 for missing."""
    values, counts = np.unique(table.y, return_counts=True)
    if len(values) <= FEW_VALUES:
        return []
    remarks = []
    for end, others in ((0, values[1:]), (-1, values[:-1])):
        gap = abs(values[end] - others[end])
        if counts[end] >= 3 and gap > np.ptp(others) / 2:
            which = table.y == values[end]
            text = (
                f"{_labels(counts[end])} are {values[end]:g}, while all others lie between "
                f"{others[0]:.4g} and {others[-1]:.4g}. If that value stands for a missing label, "
                "leave the cell empty"
            )
            remarks.append(Remark("stray", text, _rows(table, which)))
    return remarks


def _related(table: LabelledTable, variance: Floats, seed: int) -> list[Remark]:
    used = np.flatnonzero(np.isfinite(variance))
    if len(used) < findings.MIN_JUDGED:  # few labels are often correlated by chance
        return []
    used = used[sample(len(used), RELATED_ROWS, seed)]
    variance_ranks = ranks(variance[used])
    remarks = []
    with_label = label_correlation(table.y, variance)
    if abs(with_label) >= MIN_CORRELATION:
        extreme, example = chance_and_example(with_label)
        text = (
            f"{larger_labels(with_label)}. If the error bars were computed from the noisy labels, "
            f"as {example}, labels that are {extreme} by chance get small error bars, and "
            "weighting pulls predictions towards these labels. In that case let biv compare "
            "decide, or use error bars that do not follow the noise (see: biv docs error-bars)"
        )
        remarks.append(Remark("related to the label", text))
    frame = table.features.iloc[used]
    encoder = FeatureEncoder.fit(frame)
    names = encoder.names(list(frame.columns))
    ranked = [
        (float(variance_ranks @ ranks(column)), name)
        for column, name in zip(encoder(frame).T, names)  # noqa: B905
    ]
    ranked = sorted((r for r in ranked if abs(r[0]) >= MIN_CORRELATION), key=lambda r: -abs(r[0]))
    if ranked:
        shown = ", ".join(
            f"{shortened(name)} ({rank:+.2f})" for rank, name in ranked[:COLUMNS_SHOWN]
        )
        more = f" and {len(ranked) - COLUMNS_SHOWN} more" if len(ranked) > COLUMNS_SHOWN else ""
        message = Message(
            "The error bars are correlated with features: {shown}{more}. Where error bars are "
            "large, there is less to learn from, with or without weights. Leave out columns of the "
            "same measurement, such as another error bar or an end of its interval ({ignore})",
            shown=shown,
            more=more,
            ignore=Setting("ignore"),
        )
        remarks.append(Remark("related to features", message))
    return remarks


def _far_off(
    table: LabelledTable, variance: Floats, places: Places, predicted: Floats, tau2: float
) -> list[Remark]:
    known = variance[places]
    with np.errstate(invalid="ignore"):
        residual = np.abs(table.y[places] - predicted) / np.sqrt(known + tau2)
    residual = np.where(np.isfinite(known) & np.isfinite(residual), residual, 0.0)
    worst = np.argsort(-residual)[:ROWS_SHOWN]
    worst = worst[residual[worst] > FAR_OFF]
    if not len(worst):
        return []
    count = int((residual > FAR_OFF).sum())
    are, them = ("is", "it") if count == 1 else ("are", "them")
    text = (
        f"{count:,} of {len(residual):,} labels {are} more than {FAR_OFF:g} standard deviations "
        f"away from a prediction that did not use {them} (at most {residual.max():.1f})"
    )
    more = ", ..." if count > ROWS_SHOWN else ""
    return [Remark("far off", text, table.where(*places[worst]) + more)]
