"""Rows and error bars of a table that somebody should look at."""

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
from biv.workflows.label_correlation import MIN_CORRELATION, label_correlation

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

RELATED_ROWS = 20_000  # rows at most of which error bars and features are correlated
HUGE = 100.0  # times the label variance: such a label says next to nothing
COMMON, FEW_VALUES = 0.05, 10  # share of rows with one value, where there are more values than so
FAR_OFF = 5.0  # standard deviations
ROWS_SHOWN, COLUMNS_SHOWN = 5, 3


class Remark(NamedTuple):
    """Something to look at.

    Attributes:
        kind: In a word.
        text: In a sentence.
        rows: Where, the first few; empty if that is nowhere in particular.
    """

    kind: str
    text: str
    rows: str = ""

    def record(self, wording: Wording = ADVICE_OPTIONS) -> RemarkRecord:
        """Return the remark as files and reports keep it, worded for the command."""
        return RemarkRecord(kind=self.kind, text=render_text(self.text, wording), rows=self.rows)


def sample(rows: int, most: int, seed: int) -> npt.NDArray[np.int64]:
    """All rows, or so many of them by lot, in order."""
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
    """Return what to look at.

    Args:
        table: With error bars.
        variance: Its σ², with the median where one is unknown.
        label_variance: Of the labels without their noise.
        places: Rows of the table that a fit predicts without having learned from them.
        predicted: Predictions for these rows.
        tau2: Variance of the fit's own error.
        seed: Of the rows that are correlated, where there are many.
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
    found = [
        ("unknown", np.isnan(variance), "{n} have no error bar"),
        ("ignored", np.isinf(variance), "{n} have an infinite error bar: they are ignored"),
        (
            "zero",
            variance == 0,
            "{n} have an error bar of 0, and are trusted as far as ε lets them: was that measured, "
            "or does 0 stand for unknown",
        ),
        (
            "huge",
            finite & (variance > HUGE * label_variance),
            "{n} have a σ² of more than {huge:g} times the label variance, and say next to nothing",
        ),
    ]
    return [
        Remark(kind, text.format(n=_labels(which.sum()), huge=HUGE), _rows(table, which))
        for kind, which, text in found
        if which.any()
    ]


def _labels(count: Any) -> str:
    return "1 label" if count == 1 else f"{int(count):,} labels"


def _common_values(table: LabelledTable, variance: Floats) -> list[Remark]:
    known = variance[np.isfinite(variance)]
    values, counts = np.unique(known, return_counts=True)
    if len(values) == 1:
        text = "all error bars are equal: weighting by them changes nothing"
        return [Remark("equal", text)]
    often = [k for k in np.argsort(-counts) if counts[k] >= max(COMMON * len(known), 3)]
    if len(values) <= FEW_VALUES or not often:
        return []
    shown = ", ".join(
        f"{values[k]:.4g} (σ {np.sqrt(values[k]):.4g}; {counts[k] / len(known):.0%})"
        for k in often[:COLUMNS_SHOWN]
    )
    more = ", ..." if len(often) > COLUMNS_SHOWN else ""
    text = (
        f"{_labels(counts[often].sum())} share a few values of σ², where the others differ: "
        f"{shown}{more}: do these stand for something"
    )
    return [Remark("duplicated", text, _rows(table, np.isin(variance, values[often])))]


def _stray_labels(table: LabelledTable) -> list[Remark]:
    """One value that many labels have, far from all others: -99 for a missing one, say."""
    values, counts = np.unique(table.y, return_counts=True)
    if len(values) <= FEW_VALUES:
        return []
    remarks = []
    for end, others in ((0, values[1:]), (-1, values[:-1])):
        gap = abs(values[end] - others[end])
        if counts[end] >= 3 and gap > np.ptp(others) / 2:
            which = table.y == values[end]
            text = (
                f"{_labels(counts[end])} are {values[end]:g}, where all others lie between "
                f"{others[0]:.4g} and {others[-1]:.4g}: does it stand for a missing label? Then "
                "leave the cell empty"
            )
            remarks.append(Remark("stray", text, _rows(table, which)))
    return remarks


def _related(table: LabelledTable, variance: Floats, seed: int) -> list[Remark]:
    used = np.flatnonzero(np.isfinite(variance))
    if len(used) < findings.MIN_JUDGED:  # of which many are correlated by chance
        return []
    used = used[sample(len(used), RELATED_ROWS, seed)]
    own = ranks(variance[used])
    remarks = []
    with_label = label_correlation(table.y, variance)
    if abs(with_label) >= MIN_CORRELATION:
        way = "grow" if with_label > 0 else "shrink"
        small, such = ("small", "√n") if with_label > 0 else ("large", "that of the logarithm")
        text = (
            f"error bars {way} with the label (rank correlation {with_label:+.2f}). Were they "
            f"computed from the noisy labels, as {such} of a count n is? Then labels that are "
            f"{small} by chance get small error bars, and weighting pulls predictions their way: "
            "let biv compare decide, or take error bars that do not follow the noise (biv docs "
            "error-bars)"
        )
        remarks.append(Remark("related to the label", text))
    frame = table.features.iloc[used]
    encoder = FeatureEncoder.fit(frame)
    names = encoder.names(list(frame.columns))
    ranked = [(float(own @ ranks(column)), n) for column, n in zip(encoder(frame).T, names)]  # noqa: B905
    ranked = sorted((r for r in ranked if abs(r[0]) >= MIN_CORRELATION), key=lambda r: -abs(r[0]))
    if ranked:
        shown = ", ".join(
            f"{shortened(name)} ({rank:+.2f})" for rank, name in ranked[:COLUMNS_SHOWN]
        )
        more = f" and {len(ranked) - COLUMNS_SHOWN} more" if len(ranked) > COLUMNS_SHOWN else ""
        message = Message(
            "error bars go with features: {shown}{more}. Where they are large, there is less to "
            "learn from, with weights or without. Leave out columns of the same "
            "measurement, such as another error bar or an end of its interval ({ignore})",
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
        off = np.abs(table.y[places] - predicted) / np.sqrt(known + tau2)
    off = np.where(np.isfinite(known) & np.isfinite(off), off, 0.0)
    worst = np.argsort(-off)[:ROWS_SHOWN]
    worst = worst[off[worst] > FAR_OFF]
    if not len(worst):
        return []
    text = (
        f"{_labels((off > FAR_OFF).sum())} of {len(off):,}: more than {FAR_OFF:g} standard "
        f"deviations from what a fit without them predicts, up to {off.max():.1f}"
    )
    more = ", ..." if (off > FAR_OFF).sum() > ROWS_SHOWN else ""
    return [Remark("far off", text, table.where(*places[worst]) + more)]
