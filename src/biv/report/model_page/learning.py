"""The training history: the score after every epoch, and the training loss of a stream."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import UnsetType

from biv.report.charts import BLUE, GREY, ORANGE, Chart, Mark, Panel, Series
from biv.report.conclusions import UNSEEN
from biv.report.parts import Cell, Section, Table, Text
from biv.workflows.training_record import FitRecord

CHOSEN, LOSS = "chosen epoch", "training loss"
LOSSES_SHOWN = 400  # largest number of points of the curve of the training loss


def section(result: FitRecord, *, noisy: bool) -> Section:
    """Return the section.

    Parameters
    ----------
    result : FitRecord
        Result of the fit.
    noisy : bool
        True if the labels have error bars, so that the scores are corrected for their noise.
    """
    scores = _numbers(result.history)
    streamed = not isinstance(result.train_loss, UnsetType)
    panels = [_scores(scores, result.epoch, "Held out" if streamed else "")]
    colours = {UNSEEN: BLUE, CHOSEN: ORANGE}
    if not isinstance(result.train_loss, UnsetType):
        assert not isinstance(result.train_loss_steps, UnsetType)
        panels.append(_losses(_numbers(result.train_loss), result.train_loss_steps))
        colours[LOSS] = GREY
    caption = (
        f"Mean squared error{' to the true labels' if noisy else ''} after each epoch. If the "
        "curve still falls at its end, train for more epochs (--max-epochs). If it falls slowly, "
        "raise --patience."
    )
    correction = (
        " The expected noise of their labels was subtracted from that error, so that no clean "
        "labels were needed."
    )
    text = Text(
        f"Epoch {result.epoch} of {len(scores)} was chosen by its error on {UNSEEN}."
        f"{correction if noisy else ''}"
    )
    chart = Chart("learning-chart", caption, panels, colours)
    return Section("learning", "Training history", [text, chart, _table(scores, result.epoch)])


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _scores(scores: list[float], chosen: int, title: str) -> Panel:
    epochs = list(range(1, len(scores) + 1))
    best = scores[chosen - 1]
    finite = [s for s in scores if math.isfinite(s)]
    low, high = min(finite), max(finite)
    return Panel(
        title,
        "epoch",
        "error / label variance",
        [Series(UNSEEN, epochs, scores), Series(CHOSEN, [chosen], [best], "dots")],
        f"The error is {scores[0]:.4g} after the first epoch and {best:.4g} after the chosen "
        f"epoch, {chosen} of {len(scores)}.",
        marks=[Mark(float(chosen), f"chosen: {chosen}")],
        y_range=(low - 0.08 * (high - low), high + 0.08 * (high - low)) if high > low else None,
    )


def _losses(losses: list[float], every: int) -> Panel:
    places = np.linspace(0, len(losses) - 1, min(len(losses), LOSSES_SHOWN))
    shown = np.unique(places.astype(int))
    return Panel(
        "Training loss",
        "step",
        "loss",
        [Series(LOSS, [every * (k + 1) for k in shown], [losses[k] for k in shown])],
        f"The training loss goes from {losses[0]:.4g} to {losses[-1]:.4g}.",
    )


def _table(scores: list[float], chosen: int) -> Table:
    return Table(
        "learning",
        "Error after every epoch, in units of the label variance",
        ["epoch", "error", "chosen?"],
        [
            [Cell(str(e), float(e)), Cell(f"{s:.5g}", s), "yes" if e == chosen else ""]
            for e, s in enumerate(scores, start=1)
        ],
        folded=True,
        numbers=(1,),
    )
