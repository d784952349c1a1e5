"""An inspection of error bars, as text for a terminal and as a picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from biv._utils.messages import shortened
from biv.estimator.findings import FindingRecord
from biv.report import conclusions, terminal
from biv.report.charts import Z
from biv.report.conclusions import r2_in_words
from biv.report.matplotlib_figures import STYLE
from biv.workflows import Inspection
from biv.workflows.evidence_parts import BinnedResiduals, WeightShares
from biv.workflows.inspection import QuickFit
from biv.workflows.label_correlation import label_correlation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 4000  # largest number of points of the scatter plot
BINS = 60
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"


def text(inspection: Inspection[QuickFit]) -> str:
    """Return the verdict on the error bars, why, the numbers, and the rows to look at."""
    fit, finding = inspection.fit, inspection.finding.record()
    correlation = label_correlation(inspection.table.y, inspection.variance)
    verdict = conclusions.from_inspection(
        finding,
        worth=inspection.worth,
        tau2=fit.tau2,
        r2=(fit.r2, fit.r2_stderr),
        r2_alike=(fit.r2_alike, fit.r2_alike_stderr),
        correlation=correlation,
    )
    lines = [
        *terminal.headline(verdict),
        "",
        *_variances(inspection),
        *terminal.fields(_facts(inspection)),
    ]
    remarks = [r.record() for r in inspection.remarks if r.kind not in _covered_remarks(finding)]
    if remarks:
        lines += ["", "Rows and columns to look at:"]
    for sentence, rows in conclusions.remarks_in_words(remarks):
        lines.append(terminal.bullet(sentence))
        if rows:
            lines.append(f"  {rows}")
    return "\n".join([*lines, "", terminal.read_more("error-bars")])


def _covered_remarks(finding: FindingRecord) -> tuple[str, ...]:
    """Return the kinds of remarks that the verdict and its reasons contain."""
    if finding.kind == "few":  # scores of few labels say nothing about their correlation
        return ()
    if finding.kind == "equal":
        return ("equal",)
    return () if finding.voids_scores else ("related to the label",)


def _variances(inspection: Inspection[QuickFit]) -> list[str]:
    names = {0.0: "lowest", 0.5: "median", 1.0: "highest"}
    quantiles = {
        names.get(q, f"{q:.0%} quantile"): value for q, value in inspection.quantiles.items()
    }
    if len(set(quantiles.values())) == 1:
        quantiles = {"all": next(iter(quantiles.values()))}
    return terminal.columns(
        [
            ("error bars", "σ²", "σ² / label variance"),
            *(
                (f"  {name}", f"{value:.3g}", _ratio(value, inspection))
                for name, value in quantiles.items()
            ),
        ]
    )


def _ratio(value: float, inspection: Inspection[QuickFit]) -> str:
    return f"{value / inspection.label_variance:.3g}"


def _facts(inspection: Inspection[QuickFit]) -> list[tuple[str, str]]:
    fit, finding = inspection.fit, inspection.finding.record()
    labels = (
        f"mean {np.mean(inspection.table.y):.4g}, variance {np.var(inspection.table.y):.4g}, "
        f"{inspection.label_variance:.4g} without noise (the label variance)"
    )
    count = np.isfinite(inspection.variance).sum()
    size = f"{inspection.effective_sample_size:,.0f} of {count:,} labels, with weights 1/σ² (ε = 0)"
    facts = [(f"labels {shortened(inspection.table.target.name)}", labels),
             ("effective sample size", size)]  # fmt: skip
    if not finding.voids_scores:
        facts += [
            ("quick fit", f"{fit.rows:,} rows, variance of its own error τ² = {fit.tau2:.4g}"),
            ("  R² to the true labels", r2_in_words(fit.r2, fit.r2_stderr)),
            ("  the same, unweighted", r2_in_words(fit.r2_alike, fit.r2_alike_stderr)),
        ]
    epsilon = f"{fit.epsilon:.4g}, {_ratio(fit.epsilon, inspection)} of the label variance"
    return [*facts, ("suggested ε", f"{epsilon} (`biv train` chooses it itself)")]


def draw(inspection: Inspection[QuickFit]) -> Figure:
    """Draw the sizes of σ², their relation to the label, the weights, and the residuals."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as NewFigure

    with mpl.rc_context(STYLE):
        figure = NewFigure(figsize=(9.0, 6.4), layout="constrained")
        axes = figure.subplots(2, 2)
        _histogram(axes[0, 0], inspection)
        _cloud(axes[0, 1], inspection)
        _weight_shares(axes[1, 0], inspection)
        _residuals(axes[1, 1], inspection)
        name = _plain(inspection.table.target.name)
        figure.suptitle(f"Error bars of {name}: {len(inspection.table):,} labels", fontsize=10)
    return figure


def _plain(name: str) -> str:
    """Return a column's name for a figure, where a dollar sign must not start a formula."""
    return textwrap.shorten(name, 60).replace("$", r"\$")


def _positive(values: Any) -> Any:
    return values[np.isfinite(values) & (values > 0)]


def _log(values: Any) -> bool:
    return len(values) > 0 and values.max() / values.min() > 30


def _histogram(axes: Axes, inspection: Inspection[QuickFit]) -> None:
    shares = _positive(inspection.variance) / inspection.label_variance
    edges: Any = BINS
    if _log(shares):
        edges = np.geomspace(shares.min(), shares.max(), BINS)
        axes.set_xscale("log")
    axes.hist(shares, bins=edges, color=BLUE)
    axes.axvline(1.0, color=GREY, linestyle="--", label="the label variance")
    epsilon = inspection.fit.epsilon / inspection.label_variance
    if epsilon > 0:
        axes.axvline(epsilon, color=ORANGE, label="suggested ε")
    axes.set(title="How large is σ²?", xlabel="σ² in units of the label variance", ylabel="labels")
    axes.legend(frameon=False)


def _cloud(axes: Axes, inspection: Inspection[QuickFit]) -> None:
    std, y = np.sqrt(inspection.variance), inspection.table.y
    places = np.flatnonzero(np.isfinite(std) & (std > 0))
    places = places[:: max(1, len(places) // POINTS)]
    axes.plot(y[places], std[places], ".", markersize=2, alpha=0.4, color=BLUE, rasterized=True)
    if len(places) and _log(std[places]):
        axes.set_yscale("log")
    name = _plain(inspection.table.target.name)
    axes.set(title="Are error bars correlated with the label?", xlabel=name, ylabel="σ")


def _weight_shares(axes: Axes, inspection: Inspection[QuickFit]) -> None:
    finite = inspection.variance[np.isfinite(inspection.variance)]
    shares = WeightShares.of(finite, epsilon=inspection.fit.epsilon)
    for (name, share), colour in zip(shares.curves().items(), (GREY, BLUE, ORANGE), strict=False):
        axes.plot(shares.labels, share, color=colour, label=name)
    axes.set(
        title="Which labels hold the weight?",
        xlabel="fraction of the labels, most precise first",
        ylabel="fraction of the weight",
    )
    axes.legend(frameon=False)


def _residuals(axes: Axes, inspection: Inspection[QuickFit]) -> None:
    """Draw mean squared residuals in bins of σ², and the line σ²+τ²."""
    fit = inspection.fit
    variance = inspection.variance[fit.places]
    square = (inspection.table.y[fit.places] - fit.predicted) ** 2
    used = np.isfinite(variance) & np.isfinite(square)
    bins = BinnedResiduals.of(variance[used], square[used])
    x = np.array(bins.variance)
    axes.errorbar(
        x,
        bins.mean,
        Z * np.array(bins.stderr),
        fmt="o",
        markersize=3,
        color=BLUE,
        label="measured, 95%",
    )
    axes.plot(x, x + fit.tau2, color=ORANGE, label="σ² + τ²")
    if (x > 0).all() and _log(x):
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set(
        title="Do residuals agree with them?",
        xlabel="σ²",
        ylabel="mean squared residual of held-out rows",
    )
    axes.legend(frameon=False)
