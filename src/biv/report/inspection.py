"""What an inspection found, as text and as a picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from biv.estimator.findings import SILENT
from biv.report import conclusions
from biv.report.charts import Z
from biv.report.conclusions import WIDTH, r2_in_words
from biv.report.matplotlib_figures import STYLE
from biv.workflows import Inspection
from biv.workflows.evidence_parts import BinnedResiduals, WeightShares
from biv.workflows.inspection import QuickFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 4000  # shown at most, of a cloud
BINS = 60
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"


def text(seen: Inspection[QuickFit]) -> str:
    """For a terminal."""
    fit, scale = seen.fit, seen.label_variance
    shares = {0.0: "lowest", 0.5: "median", 1.0: "highest"}
    lines = [
        f"Labels {seen.table.target.name!r}: mean {np.mean(seen.table.y):.4g}, variance "
        f"{np.var(seen.table.y):.4g}, and without their noise {scale:.4g} (the label variance).",
        "",
        f"σ²           {'':8}   of the label variance",
        *(
            f"  {shares.get(q, f'{q:.0%} below'):10} {value:8.3g}   {value / scale:8.3g}"
            for q, value in seen.quantiles.items()
        ),
        "",
        f"Weights 1/σ² alone would rest on {seen.effective_sample_size:,.1f} of "
        f"{np.isfinite(seen.variance).sum():,} labels (effective sample size).",
    ]
    finding = seen.finding.record()
    if not finding.voids_scores:
        lines.append(
            f"A quick fit on {fit.rows:,} rows reaches R² {r2_in_words(fit.r2)} to the true labels "
            f"of rows that it has not seen; if all labels count alike in it, R² is "
            f"{r2_in_words(fit.r2_alike)}. The fit's own error has a variance τ² of {fit.tau2:.4g}."
        )
        lines += conclusions.disagreement(fit.r2, fit.r2_stderr, fit.r2_alike, fit.r2_alike_stderr)
    lines += conclusions.expected_worth(seen.worth, fit.tau2, finding)
    lines += conclusions.finding_in_words(finding)
    lines.append(
        f"Suggested ε: {fit.epsilon / scale:.3g} of the label variance ({fit.epsilon:.4g}): the "
        "τ² of a shorter fit before, or a fifth of it where that predicts better. `biv train` "
        "finds it by itself."
    )
    nothing = f"Nothing {'' if finding.kind in SILENT else 'else '}about them looks odd."
    lines += ["", "To look at:" if seen.remarks else nothing]
    for sentence, rows in conclusions.remarks_in_words([r.record() for r in seen.remarks]):
        lines.append(f"- {sentence}")
        if rows:
            lines.append(f"  {rows}")
    wrapped = (
        textwrap.fill(
            line,
            WIDTH,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_on_hyphens=False,  # an option is to be copied
        )
        if not line.startswith(" ")
        else line
        for line in lines
    )
    return "\n".join(wrapped)


def draw(seen: Inspection[QuickFit]) -> Figure:
    """How large σ² is, where, what counts, and whether residuals agree."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as NewFigure

    with mpl.rc_context(STYLE):
        figure = NewFigure(figsize=(9.0, 6.4), layout="constrained")
        axes = figure.subplots(2, 2)
        _histogram(axes[0, 0], seen)
        _cloud(axes[0, 1], seen)
        _weight_shares(axes[1, 0], seen)
        _residuals(axes[1, 1], seen)
        name = _plain(seen.table.target.name)
        figure.suptitle(f"Error bars of {name}: {len(seen.table):,} labels", fontsize=10)
    return figure


def _plain(name: str) -> str:
    """A column's name as it is: a dollar sign begins no formula."""
    return textwrap.shorten(name, 60).replace("$", r"\$")


def _positive(values: Any) -> Any:
    return values[np.isfinite(values) & (values > 0)]


def _log(values: Any) -> bool:
    return len(values) > 0 and values.max() / values.min() > 30


def _histogram(axes: Axes, seen: Inspection[QuickFit]) -> None:
    shares = _positive(seen.variance) / seen.label_variance
    edges: Any = BINS
    if _log(shares):
        edges = np.geomspace(shares.min(), shares.max(), BINS)
        axes.set_xscale("log")
    axes.hist(shares, bins=edges, color=BLUE)
    axes.axvline(1.0, color=GREY, linestyle="--", label="the label variance")
    epsilon = seen.fit.epsilon / seen.label_variance
    if epsilon > 0:
        axes.axvline(epsilon, color=ORANGE, label="suggested ε")
    axes.set(title="How large is σ²?", xlabel="σ² in units of the label variance", ylabel="labels")
    axes.legend(frameon=False)


def _cloud(axes: Axes, seen: Inspection[QuickFit]) -> None:
    std, y = np.sqrt(seen.variance), seen.table.y
    places = np.flatnonzero(np.isfinite(std) & (std > 0))
    places = places[:: max(1, len(places) // POINTS)]
    axes.plot(y[places], std[places], ".", markersize=2, alpha=0.4, color=BLUE, rasterized=True)
    if len(places) and _log(std[places]):
        axes.set_yscale("log")
    name = _plain(seen.table.target.name)
    axes.set(title="Do error bars go with the label?", xlabel=name, ylabel="σ")


def _weight_shares(axes: Axes, seen: Inspection[QuickFit]) -> None:
    finite = seen.variance[np.isfinite(seen.variance)]
    shares = WeightShares.of(finite, epsilon=seen.fit.epsilon)
    for (name, share), colour in zip(shares.curves().items(), (GREY, BLUE, ORANGE), strict=False):
        axes.plot(shares.labels, share, color=colour, label=name)
    axes.set(
        title="Which share of the labels holds the weight?",
        xlabel="share of the labels, the best first",
        ylabel="share of the weight",
    )
    axes.legend(frameon=False)


def _residuals(axes: Axes, seen: Inspection[QuickFit]) -> None:
    """Mean squared residuals in bins of σ², beside σ²+τ²."""
    fit = seen.fit
    own = seen.variance[fit.places]
    square = (seen.table.y[fit.places] - fit.predicted) ** 2
    used = np.isfinite(own) & np.isfinite(square)
    bins = BinnedResiduals.of(own[used], square[used])
    x = np.array(bins.variance)
    axes.errorbar(
        x,
        bins.mean,
        Z * np.array(bins.stderr),
        fmt="o",
        markersize=3,
        color=BLUE,
        label="found, 95%",
    )
    axes.plot(x, x + fit.tau2, color=ORANGE, label="σ² + τ²")
    if (x > 0).all() and _log(x):
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set(
        title="Do residuals agree with them?",
        xlabel="σ²",
        ylabel="mean squared residual of rows left out",
    )
    axes.legend(frameon=False)
