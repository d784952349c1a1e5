"""The report on one's own data: what the error bars look like, what they bought, and the model."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from biv.estimator.findings import SILENT
from biv.report.charts import BLUE, GREEN, GREY, ORANGE, PINK, Chart, Colour, Mark, Panel, Series
from biv.report.inspection import r2_in_words
from biv.report.page import (
    Bullets,
    Cell,
    Commands,
    Figure,
    Figures,
    Page,
    Part,
    Section,
    Table,
    Text,
    clean,
    made,
    quoted,
)
from biv.report.trained import caveats
from biv.workflows import ModelFolder
from biv.workflows.evidence import Evidence
from biv.workflows.methods import BIV, SHUFFLED

Z = 1.96  # standard errors to each side: 95 %
OFF_SCALE = 12.0  # times the median above the best: what lies beyond is named, not drawn
LITTLE = 1.1  # times as many labels: what weighting is worth, and not worth a word
UNSEEN = "rows that the networks had not seen"


def of_model(folder: ModelFolder, place: str) -> Page:
    """A model, its table, and the comparison that was made for it, if any.

    Raises:
        ValueError: The folder was written without what a report needs.
    """
    evidence, result = folder.evidence, folder.about["result"]
    if evidence is None:
        raise ValueError(f"{place} has no evidence.json: it is of an older biv. Train it again")
    sections = [
        *_error_bars(evidence),
        *_bought(evidence, folder.comparison, _compare_command(folder)),
        _learning(result, noisy=evidence.bars is not None),
        *_predictions(evidence),
        _look_at(evidence),
        _about_model(folder, place),
    ]
    first, *more = _answers(evidence, folder.comparison)
    if evidence.finding is not None and evidence.finding["kind"] not in SILENT:
        more.append(f"Finding about the error bars: {evidence.finding['text']}.")
    more += caveats(result)
    if result["r2"] is None or result["r2"] < 2 * result["r2_stderr"]:
        more = [first, *more]
        first = (
            "The model predicts next to nothing of these labels: R² "
            f"{r2_in_words(result['r2'], result['r2_stderr'])} on {UNSEEN}."
        )
    return Page(
        f"Error bars of {quoted(evidence.target)}"
        if evidence.bars
        else f"A model of {quoted(evidence.target)}",
        f"{evidence.rows:,} labels in {_files(folder.about['files'])}; "
        f"{_count(len(folder.schema.columns), 'column')} to learn from.",
        first,
        sections,
        parts=[_model_figures(evidence, result)],
        made=made(),
        answers=more,
    )


def of_comparison(evidence: Evidence, told: Mapping[str, Any], command: str) -> Page:
    """Methods compared on a table, before any model of it is kept.

    Args:
        evidence: Of the table and of BIV's predictions.
        told: What the comparison told.
        command: That made it.
    """
    first, *more = _answers(evidence, told)
    repeat = Section(
        "repeat",
        "How to repeat it",
        [
            Commands([command]),
            Text(
                f"Folds: {told['folds']}; rows compared: {told['rows']:,} of "
                f"{told['rows_in_all']:,}. Predictions on this page are BIV's, of rows that were "
                "left out."
            ),
        ],
    )
    sections = [
        *_error_bars(evidence),
        *_bought(evidence, told, ""),
        *_predictions(evidence),
        _look_at(evidence),
        repeat,
    ]
    figures = _label_figures(evidence)
    return Page(
        f"Are the error bars of {quoted(evidence.target)} worth it?",
        f"{evidence.rows:,} labels; {told['rows']:,} of them compared in {told['folds']} folds.",
        first,
        sections,
        parts=[Figures(figures)],
        made=made(),
        answers=more,
    )


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _files(files: Mapping[str, int]) -> str:
    if len(files) == 1:
        return quoted(next(iter(files)))
    return f"{len(files)} files"


def _answers(evidence: Evidence, told: Mapping[str, Any] | None) -> list[str]:
    """The recommendation in a sentence, and what it rests on."""
    if told is not None:
        first, stop, rest = told["recommendation"].partition(". ")
        return [first + stop.strip(), *([rest] if rest else [])]
    if evidence.bars is None:
        return ["There were no error bars: all labels counted alike, and their noise is in every "
                "error on this page."]  # fmt: skip
    worth = evidence.bars["worth"]
    if worth is None:
        first = "Some labels have no noise at all: weighting lets the model learn most from them."
    elif worth < LITTLE:
        first = (
            "Beside the model's own error (τ = "
            f"{math.sqrt(max(evidence.tau2, 0.0)):.3g}) these error bars differ too little to "
            "matter: weighting by them changes next to nothing."
        )
    else:
        first = (
            "If they are right, weighting by these error bars should be worth "
            f"{f'{worth:.2g}' if worth < 100 else 'more than a hundred'} times as many labels, as "
            "far as their noise is what limits the model: biv compare measures it."
        )
    return [first]


def _label_figures(evidence: Evidence, counting: float | None = None) -> list[Figure]:
    """What labels and error bars amount to; `counting`, so many of all labels."""
    noisy = evidence.bars is not None
    note = "without the labels' noise" if noisy else "with their noise"
    found = [Figure("label variance", f"{evidence.label_variance:.4g}", note)]
    if evidence.bars:
        median = evidence.bars["quantiles"]["0.5"] / evidence.label_variance
        found.append(Figure("median σ²", f"{median:.3g}", "of the label variance"))
        size, count = counting, evidence.rows
        if size is None:
            size = evidence.bars["effective_sample_size"]["1/(σ²+τ²)"]
            count = evidence.bars["count"]
        note = f"of {count:,} labels, by 1/(σ²+τ²)"
        found.append(Figure("effective sample size", f"{size:,.0f}", note))
    own = f"{math.sqrt(max(evidence.tau2, 0.0)):.4g}"
    found.append(Figure("the model's own error, τ", own, "in units of the label"))
    return found


def _model_figures(evidence: Evidence, result: Mapping[str, Any]) -> Figures:
    found = [
        Figure(
            "R² to the true labels" if evidence.bars else "R²",
            "undefined" if result["r2"] is None else f"{result['r2']:.3f}",
            f"{_plus_minus(result)}of {UNSEEN}{_alike(result)}",
        ),
        *_label_figures(evidence, result["effective_sample_size"]),
    ]
    if result["epsilon"] is not None:
        note = f"{result['relative_epsilon']:.3g} of the label variance"
        found.append(Figure("ε", f"{result['epsilon']:.4g}", note))
    return Figures(found)


def _plus_minus(result: Mapping[str, Any]) -> str:
    return "" if result["r2"] is None else f"± {result['r2_stderr']:.3f}, "


def _alike(result: Mapping[str, Any]) -> str:
    """The same score without trust in the small error bars; of an older model there is none."""
    if result["variance_factor_interval"] is None or "r2_all_labels_alike" not in result:
        return ""
    value, stderr = result["r2_all_labels_alike"], result["r2_all_labels_alike_stderr"]
    return "" if value is None else f"; {value:.3f} ± {stderr:.3f} with all labels alike"


def _compare_command(folder: ModelFolder) -> str:
    """That would compare methods on the same columns."""
    target = folder.target
    words = ["biv", "compare", *folder.about["files"], "--target", target.name]
    if target.interval is not None:
        words += ["--target-interval", *target.interval, "--level", f"{target.level:g}"]
    elif target.error_bars:
        words += ["--target-std" if target.std else "--target-var", target.error_bars[0]]
    if target.weight is not None:
        words += ["--weight", target.weight]
    return shlex.join([*words, "--features", *folder.schema.names, "--json"])


def _error_bars(evidence: Evidence) -> list[Section]:
    bars = evidence.bars
    if bars is None:
        return []
    quantiles = bars["quantiles"]
    names = {"0": "lowest", "0.5": "median", "1": "highest"}
    table = Table(
        "error-bars",
        f"σ² of {_whose(evidence)}",
        ["labels", "σ²", "σ", "σ² in units of the label variance"],
        [
            [
                Cell(names.get(q, f"{float(q):.0%} below"), float(q)),
                Cell(f"{value:.4g}", float(value)),
                Cell(f"{math.sqrt(value):.4g}", math.sqrt(value)),
                Cell(f"{value / evidence.label_variance:.3g}", value / evidence.label_variance),
            ]
            for q, value in quantiles.items()
        ],
        numbers=(1, 2, 3),
    )
    words = [
        f"σ² beside the label variance ({evidence.label_variance:.4g}), which is what there is to "
        "learn: a label whose σ² is as large says half as much as a clean one could."
    ]
    if bars["zeros"]:
        words.append(f"{bars['zeros']:,} error bars are 0, and not in the histogram.")
    parts: list[Part | Chart] = [
        Text(" ".join(words), "lead"),
        _bars_chart(evidence, bars),
        table,
    ]
    if evidence.finding is not None:
        parts.append(Text(f"Finding: {evidence.finding['text']}."))
    if evidence.remarks:
        items = [
            f"{r['text']}{'?' if r['kind'] in ('zero', 'duplicated') else '.'}"
            + (f" ({clean(r['rows'], 300)})" if r["rows"] else "")
            for r in evidence.remarks
            if r["kind"] != "far off"
        ]
        parts += [Text("To look at:"), Bullets(items)] if items else []
    return [Section("error-bars", "What the error bars look like", parts)]


def _whose(evidence: Evidence) -> str:
    """Labels whose error bars are shown."""
    assert evidence.bars is not None
    words = f"{evidence.bars['count']:,} labels"
    if evidence.looked_at < evidence.rows:
        words += f" that were held out, of {evidence.rows:,}"
    elif evidence.bars["count"] < evidence.rows:
        words += f" that have one, of {evidence.rows:,}"
    return words


def _bars_chart(evidence: Evidence, bars: Mapping[str, Any]) -> Chart:
    edges, counts = np.array(bars["edges"]), bars["histogram"]
    middles = np.sqrt(edges[1:] * edges[:-1]) if bars["log"] else (edges[1:] + edges[:-1]) / 2
    marks = [Mark(1.0, "label variance")]
    if evidence.epsilon:
        marks.append(Mark(evidence.epsilon / evidence.label_variance, "ε"))
    marks = [mark for mark in marks if edges[0] <= mark.at <= edges[-1] and mark.at > 0]
    cloud = evidence.cloud
    used = [k for k, sigma in enumerate(cloud["sigma"]) if sigma > 0]
    sigma = [cloud["sigma"][k] for k in used]
    shares = bars["weight_shares"]
    sizes = bars["effective_sample_size"]
    panels = [
        Panel(
            "How large is σ²?",
            "σ² in units of the label variance",
            "labels",
            # A histogram as steps: bars of a logarithmic axis have no width of their own.
            [Series("labels", *_steps(edges, counts), low=[0] * (2 * len(counts)),
                    high=_steps(edges, counts)[1])],
            f"Half of the labels have a σ² below {bars['quantiles']['0.5']:.4g}, from "
            f"{bars['quantiles']['0']:.4g} to {bars['quantiles']['1']:.4g}; most lie near "
            f"{middles[int(np.argmax(counts))]:.3g} of the label variance.",
            log="x" if bars["log"] else "",
            marks=marks,
        ),
        Panel(
            "Do they go with the label?",
            clean(evidence.target),
            "σ",
            [Series("labels", [cloud["y"][k] for k in used], sigma, "dots")],
            f"σ of {len(used):,} labels against the label.",
            log="y" if sigma and max(sigma) > 10 * min(sigma) else "",
        ),
        Panel(
            "Which labels hold the weight?",
            "share of the labels, the best first",
            "share of the weight",
            [Series(name, shares["labels"], v) for name, v in shares.items() if name != "labels"],
            "Effective sample sizes: "
            + "; ".join(f"weights {name}: {size:,.0f}" for name, size in sizes.items())
            + f", of {bars['count']:,} labels.",
        ),
    ]  # fmt: skip
    colours = {"labels": BLUE, "all alike": GREY, "1/σ²": ORANGE}
    colours |= {"1/(σ²+ε)": GREEN, "1/(σ²+τ²)": GREEN}
    shown = {series.name for panel in panels for series in panel.series}
    return Chart(
        "error-bars-chart",
        f"The histogram and the weights are of {_whose(evidence)}; the cloud shows {len(used):,} "
        "of them.",
        panels,
        {name: colour for name, colour in colours.items() if name in shown},
    )


def _steps(edges: Any, counts: Sequence[float]) -> tuple[list[float], list[float]]:
    x = np.repeat(np.maximum(edges, edges[edges > 0].min() / 10), 2)[1:-1]
    return x.tolist(), np.repeat(counts, 2).tolist()


def _bought(evidence: Evidence, told: Mapping[str, Any] | None, command: str) -> list[Section]:
    """What was compared; or with which command it can be."""
    if evidence.bars is None:
        return []
    heading = "What weighting bought"
    if told is None:
        worth = evidence.bars["worth"]
        expected = "" if worth is None else (
            "By the error bars alone, weights 1/(σ²+τ²) should lower the variance of what is "
            f"learned by {1 - 1 / worth:.0%}. "
        )  # fmt: skip
        words = (
            f"{expected}Whether they do is measured by cross-validation, beside methods that make "
            "no use of them and beside the same error bars on the wrong rows; then this section "
            "has the result:"
        )
        commands = [
            f"{command} > comparison.json",
            "biv report MODEL --comparison comparison.json -o report.html --force",
        ]
        return [Section("bought", heading, [Text(words), Commands(commands)])]
    scale = told["label_variance"]
    rows = told["methods"]
    gain, control = told["gain"], told["control"]
    figures = [
        Figure("BIV beside L2", _effect(gain), _range(gain)),
        Figure("BIV beside shuffled error bars", _effect(control), _range(control)),
    ]
    if told["gain_all_labels_alike"] is not None:
        alike = told["gain_all_labels_alike"]
        note = f"{_range(alike)}, of the label variance"
        figures.append(Figure("BIV beside L2, if all labels count alike", _effect(alike), note))
    table = Table(
        "methods",
        f"{told['rows']:,} of {told['rows_in_all']:,} rows, {told['folds']} folds; errors in units "
        "of the label variance, the lowest first; ± is a standard error, of differences that are "
        "paired",
        ["method", "error", "± error", "above the best", "± above", "shown to be worse?", "seconds",
         "chosen"],
        [
            [
                Cell(m["method"], tone="best" if k == 0 else ""),
                Cell(f"{m['mse'] / scale:.4f}", m["mse"] / scale),
                Cell(f"{m['mse_stderr'] / scale:.4f}", m["mse_stderr"] / scale),
                Cell(f"{m['above_best'] / scale:+.4f}", m["above_best"] / scale),
                Cell(f"{m['above_best_stderr'] / scale:.4f}", m["above_best_stderr"] / scale),
                "yes" if m.get("shown_worse_than_best", not m["as_good_as_best"]) else "no",
                Cell(f"{m['seconds']:.0f}", float(m["seconds"])),
                m["chosen"],
            ]
            for k, m in enumerate(rows)
        ],
        numbers=(1, 2, 3, 4, 6),
    )  # fmt: skip
    parts: list[Part | Chart] = [Figures(figures), _methods_chart(told), table]
    failed = [f"{name} has no answer here: {reason}" for name, reason in told["failed"].items()]
    if failed:
        parts.append(Bullets(failed))
    return [Section("bought", heading, parts)]


def _effect(effect: Mapping[str, float]) -> str:
    return f"{abs(effect['value']):.1%} {'lower' if effect['value'] >= 0 else 'higher'}"


def _range(effect: Mapping[str, float]) -> str:
    low, high = effect["low"], effect["high"]
    return f"95 %: {-high:+.1%} to {-low:+.1%}"


def _methods_chart(told: Mapping[str, Any]) -> Chart:
    scale = told["label_variance"]
    kinds: dict[str, Colour] = {"BIV": BLUE, "shuffled error bars": PINK, "others": GREY}

    def kind(name: str) -> str:
        return {BIV: "BIV", SHUFFLED: "shuffled error bars"}.get(name, "others")

    above = [m["above_best"] / scale for m in told["methods"]]
    # One that is lost, among others that are close, would make dots of them all.
    most = max(OFF_SCALE * float(np.median(above)), 1e-12)
    beyond = [m["method"] for m, a in zip(told["methods"], above, strict=True) if a > most]
    series = []
    for name in kinds:
        own = [m for m in told["methods"] if kind(m["method"]) == name]
        values = [m["above_best"] / scale for m in own]
        half = [Z * m["above_best_stderr"] / scale for m in own]
        series.append(
            Series(
                name,
                values,
                [m["method"] for m in own],
                "dots",
                low=[v - h for v, h in zip(values, half, strict=True)],
                high=[v + h for v, h in zip(values, half, strict=True)],
                sideways=True,
            )
        )
    said = "; ".join(
        f"{m['method']} {m['mse'] / scale:.4f}, {a:+.4f}"
        for m, a in zip(told["methods"], above, strict=True)
    )
    panel = Panel(
        "",
        "error above the best / label variance",
        "",
        series,
        f"Errors, the lowest first, and what they are above the best: {said}.",
        rows=[m["method"] for m in told["methods"]],
        x_range=(-0.15 * most, most) if beyond else None,
        marks=[Mark(0.0, "the best")],
    )
    caption = (
        "How much higher the mean squared error to the true labels is than that of the best, on "
        "the same rows left out, with 95 % intervals of the paired difference."
    )
    if beyond:
        caption += f" Beyond the axis: {', '.join(beyond)}."
    return Chart("methods-chart", caption, [panel], kinds)


def _learning(result: Mapping[str, Any], *, noisy: bool) -> Section:
    scores = [math.nan if s is None else s for s in result["history"]]
    epochs = list(range(1, len(scores) + 1))
    chosen = result["epoch"]
    best = scores[chosen - 1]
    finite = [s for s in scores if math.isfinite(s)]
    low, high = min(finite), max(finite)
    series = [
        Series(UNSEEN, epochs, scores),
        Series("the chosen epoch", [chosen], [best], "dots"),
    ]
    panels = [
        Panel(
            "" if "train_loss" not in result else "Held out",
            "epoch",
            "error / label variance",
            series,
            f"From {scores[0]:.4g} after the first epoch to {best:.4g} after epoch {chosen}, the "
            f"chosen one, of {len(scores)}.",
            marks=[Mark(float(chosen), f"chosen: {chosen}")],
            y_range=(low - 0.08 * (high - low), high + 0.08 * (high - low)) if high > low else None,
        )
    ]
    colours = {UNSEEN: BLUE, "the chosen epoch": ORANGE}
    if "train_loss" in result:
        losses = [math.nan if v is None else v for v in result["train_loss"]]
        every = result["train_loss_steps"]
        shown = np.unique(np.linspace(0, len(losses) - 1, min(len(losses), 400)).astype(int))
        panels.append(
            Panel(
                "Training loss",
                "step",
                "loss",
                [Series("training loss", [every * (k + 1) for k in shown],
                        [losses[k] for k in shown])],
                f"From {losses[0]:.4g} to {losses[-1]:.4g}.",
            )
        )  # fmt: skip
        colours["training loss"] = GREY
    table = Table(
        "learning",
        "The error after every epoch",
        ["epoch", "error", "chosen?"],
        [
            [Cell(str(e), float(e)), Cell(f"{s:.5g}", s), "yes" if e == chosen else ""]
            for e, s in zip(epochs, scores, strict=True)
        ],
        folded=True,
        numbers=(1,),
    )
    text = Text(
        f"Epoch {chosen} of {len(scores)} was chosen by the error on {UNSEEN}"
        + (
            ", with the noise of their labels taken out: no clean label was needed."
            if noisy
            else "."
        )
    )
    caption = (
        f"Mean squared errors{' to the labels without their noise' if noisy else ''}. A curve "
        "that still falls at its end asks for more epochs (--max-epochs), or for more patience "
        "(--patience) if it fell slowly."
    )
    chart = Chart("learning-chart", caption, panels, colours)
    return Section("learning", "How it learned", [text, chart, table])


def _predictions(evidence: Evidence) -> list[Section]:
    cloud = {name: np.array(values) for name, values in evidence.cloud.items()}
    y, sigma, predicted = cloud["y"], cloud["sigma"], cloud["predicted"]
    ends = [float(predicted.min()), float(predicted.max())]
    noisy = evidence.bars is not None
    few = np.linspace(0, len(y) - 1, min(len(y), 300)).round().astype(int)
    series = [Series("labels", predicted, y, "dots")]
    if noisy:
        low, high = y[few] - sigma[few], y[few] + sigma[few]
        bars = Series("error bars, σ", predicted[few], y[few], "dots", low, high, bare=True)
        series.insert(0, bars)
    series.append(Series("equal", ends, ends))
    covered = evidence.coverage
    share = dict(zip(covered["level"], covered["found"], strict=True))
    residual = y - predicted
    width = np.sqrt(sigma**2 + evidence.tau2)
    charts: list[Part | Chart] = [
        Chart(
            "predictions-chart",
            f"{len(y):,} of {evidence.judged:,} rows"
            + (f", {len(few):,} of them with their error bars." if noisy else ".")
            + " To the right: of intervals about these predictions, as wide as the model says"
            + (" and the label's own σ² makes them" if noisy else "")
            + ", how many hold the label. On the line they are right; above it, wider than they "
            "need be. (Widths are those of the whole ensemble, or τ.)",
            [
                Panel(
                    "Predictions and labels",
                    "prediction",
                    clean(evidence.target),
                    series,
                    f"Labels against predictions of {len(y):,} {UNSEEN}.",
                ),
                Panel(
                    "Calibration of the intervals",
                    "level of the interval",
                    "share of the labels in it",
                    [
                        Series("found", covered["level"], covered["found"]),
                        Series("equal", [0, 1], [0, 1]),
                    ],
                    f"68 % intervals hold {share[0.68]:.0%} of the labels, 95 % intervals "
                    f"{share[0.95]:.0%}.",
                ),
            ],
            {"labels": BLUE, "error bars, σ": PINK, "found": GREEN, "equal": GREY}
            if noisy
            else {"labels": BLUE, "found": GREEN, "equal": GREY},
        ),
        Table(
            "calibration",
            "Calibration of the intervals",
            ["level", "share of the labels in it"],
            [
                [Cell(f"{level:.0%}", level), Cell(f"{found:.1%}", found)]
                for level, found in zip(covered["level"], covered["found"], strict=True)
            ],
            folded=True,
            numbers=(1,),
        ),
    ]
    sections = [Section("predictions", "Predictions beside labels", charts)]
    if not noisy:
        return sections
    bins = {name: np.array(values) for name, values in evidence.residuals.items()}
    order = np.argsort(sigma)
    x = sigma[order]
    log = bool(
        (bins["variance"] > 0).all() and bins["variance"].max() > 30 * bins["variance"].min()
    )
    expected = bins["variance"] + evidence.tau2
    residuals = Chart(
        "residuals-chart",
        f"To the left {len(y):,} rows, with 1.96 √(σ²+τ²) to each side, which 95 % should lie "
        "between; to the right means over rows of nearly the same σ², with 95 % intervals.",
        [
            Panel(
                "Residuals over σ",
                "σ",
                "label − prediction",
                [
                    Series("residuals", sigma, residual, "dots"),
                    Series("σ² + τ²", x, Z * width[order]),
                    Series("σ² + τ²", x, -Z * width[order]),
                ],
                f"{float(np.mean(np.abs(residual) <= Z * width)):.0%} of the residuals lie within "
                "1.96 √(σ²+τ²).",
                log="x" if log and x[0] > 0 else "",
            ),
            Panel(
                "Do they grow with σ² as they should?",
                "σ²",
                "mean squared residual",
                [
                    Series(
                        "residuals",
                        bins["variance"],
                        bins["mean"],
                        "dots",
                        low=bins["mean"] - Z * bins["stderr"],
                        high=bins["mean"] + Z * bins["stderr"],
                    ),
                    Series("σ² + τ²", bins["variance"], expected),
                ],
                "Mean squared residuals from the smallest σ² to the largest: "
                + ", ".join(f"{m:.3g} (expected {e:.3g})"
                            for m, e in zip(bins["mean"], expected, strict=True))
                + ".",
                log="xy" if log else "",
            ),
        ],
        {"residuals": BLUE, "σ² + τ²": ORANGE},
    )  # fmt: skip
    table = Table(
        "residuals",
        "Mean squared residuals by σ²",
        ["σ²", "mean squared residual", "standard error", "σ² + τ²"],
        [
            [Cell(f"{v:.4g}", float(v)) for v in row]
            for row in zip(bins["variance"], bins["mean"], bins["stderr"], expected, strict=True)
        ],
        folded=True,
        numbers=(0, 1, 2, 3),
    )
    sections.append(Section("residuals", "Residuals over σ²", [residuals, table]))
    return sections


def _look_at(evidence: Evidence) -> Section:
    table = Table(
        "look-at",
        "The rows that are furthest from what is predicted for them",
        ["row", clean(evidence.target, 40), "σ", "prediction", "standard deviations off"],
        [
            [
                row["where"],
                Cell(f"{row['y']:.6g}", row["y"]),
                Cell(
                    f"{row['sigma']:.4g}{' (taken)' if row['sigma_unknown'] else ''}", row["sigma"]
                ),
                Cell(f"{row['predicted']:.6g}", row["predicted"]),
                Cell(f"{row['off']:.1f}", row["off"]),
            ]
            for row in evidence.look_at
        ],
        numbers=(1, 2, 3, 4),
    )
    text = Text(
        "In standard deviations of the label's noise and the model's error together. Beyond 5 or "
        "so, a label is more likely to be wrong, or its error bar too small, than unlucky."
    )
    return Section("look-at", "The rows to look at first", [text, table])


def _about_model(folder: ModelFolder, place: str) -> Section:
    about, result = folder.about, folder.about["result"]
    facts: list[tuple[str, str]] = [
        ("label", folder.target.name),
        ("error bars", ", ".join(folder.target.error_bars) or "none"),
        ("rows with a label", f"{about['rows']:,}"),
        ("rows without one, left out", f"{about['rows_without_label']:,}"),
        (
            "mean squared error to the true labels",
            f"{result['mse']:.5g} ± {result['mse_stderr']:.2g}",
        ),
        ("R²", r2_in_words(result["r2"], result["r2_stderr"])),
        ("label variance", f"{result['label_variance']:.5g}"),
        ("τ²", f"{result['tau2']:.5g}"),
    ]
    facts += [
        ("time", f"{about['seconds']:.0f} s"),
        ("biv", metadata.version("biv")),
        *((f"setting {name}", str(value)) for name, value in about["settings"].items()),
    ]
    columns = Table(
        "columns",
        "The columns that it learns from",
        ["column", "kind"],
        [[column.name, column.kind] for column in folder.schema.columns],
        folded=True,
    )
    files = Table(
        "files",
        "The files",
        ["file", "rows"],
        [[path, Cell(f"{rows:,}", float(rows))] for path, rows in about["files"].items()],
        folded=len(about["files"]) > 3,
        numbers=(1,),
    )
    return Section(
        "model",
        "The model, and how to repeat it",
        [
            Text("What trained it; to predict with it; to make this page again:"),
            Commands(
                [
                    *([about["command"]] if about.get("command") else []),
                    f"biv predict {place} NEW.csv",
                    f"biv report {place} -o report.html --force",
                ]
            ),
            Table("facts", "How it came about", ["what", "found"], [list(f) for f in facts]),
            files,
            columns,
        ],
    )
