"""Test the tables and figures that are built from results."""

import csv
import re
from dataclasses import replace

import numpy as np
import pytest

from biv.paper.artefacts import artefacts
from biv.paper.grid import BIV, CLEAN, LinePanel
from biv.paper.presets import PRESETS
from biv.paper.report import figures, lines, tables
from biv.paper.results import RunResult
from biv.paper.summary import summarise
from helpers.paper_runs import SMOKE, line_of


def test_the_lowest_loss_is_the_minimum_of_the_mean_smoothed_curve():
    rng = np.random.default_rng(0)
    curves = rng.random((3, 50)) + np.linspace(1, 0, 50) ** 2
    line, results = line_of(*curves)
    smooth = np.array([[c[k : k + 35].mean() for k in range(16)] for c in curves])
    summary = summarise(line, results, seeds=3)
    step = smooth.mean(axis=0).argmin()
    assert summary.lowest == pytest.approx(smooth.mean(axis=0)[step])
    assert summary.lowest_std == pytest.approx(smooth[:, step].std(ddof=1), rel=1e-5)
    assert summary.samples.tolist() == [256 * n for n in range(35, 51)]


def test_diverged_runs_are_counted_and_omitted():
    low, high = np.full(50, 0.2), np.full(50, 3.0)
    line, results = line_of(low, high, low, diverged=(2,))
    summary = summarise(line, results, seeds=3)
    assert (summary.diverged, len(summary.seeds)) == (2, 3)
    assert summary.lowest == pytest.approx(0.2)
    line, results = line_of(low, low, diverged=(0, 1))
    diverged = summarise(line, results, seeds=5)
    assert np.isnan(diverged.lowest)
    assert diverged.seeds == (0, 1)
    assert summarise(line, {}, seeds=5) is None


def test_diverged_runs_that_stayed_finite_are_shown_if_there_are_no_others():
    falls_and_rises = np.concatenate([np.full(40, 0.6), np.linspace(0.6, 3.0, 60)])
    line, results = line_of(
        falls_and_rises, falls_and_rises + 0.1, np.full(100, 0.2), diverged=(2,)
    )
    summary = summarise(line, results, seeds=3)
    assert summary.diverged == 3
    assert summary.lowest == pytest.approx(0.65)
    artefact = replace(SMOKE["fig01"], panels=(LinePanel("", (line,)),))
    assert (
        "3 of 3 runs diverged and are omitted; a line whose runs all diverged shows those that "
        "stayed finite."
    ) in figures.caption(artefact, results, 3)
    assert "1 of 1 runs diverged and are omitted." in figures.caption(
        artefact, {r: results[r] for r in line.runs(3)[2:]}, 3
    )


def table_results(lowest):
    """Return the table and results with flat curves at these heights, by (panel, method)."""
    table, results = SMOKE["table1"], {}
    flat = np.zeros(20, dtype=np.float32)
    for panel in table.panels:
        for line in panel.lines:
            height = lowest.get((panel.title, line.label), 0.5)
            for run in line.runs(2) if height is not None else ():
                curve = np.full(40, height + 0.001 * run.seed, dtype=np.float32)
                results[run] = RunResult(run, curve, flat, flat, flat, None, {})
    return table, results


def test_the_table_has_the_numbers_of_the_runs():
    table, results = table_results(
        {
            ("α=1", "L2"): 0.2,
            ("α=1", "BIV"): 0.15,
            ("α=1", "GT"): 0.1,
            ("α=0.5", "GT"): 0.1,
            ("α=0.25", "GT"): 0.1,
            ("α=0.25", "IV"): 2.0,
            ("α=0.5", "C=μ"): None,
        }
    )
    columns = tables.cells(table, results, 2)
    entries = {(cell.noise, cell.method): cell for column in columns for cell in column}
    biv = entries["α=1", "BIV"]
    assert biv.best
    assert sum(cell.best for cell in columns[0]) == 1
    assert biv.ratio == pytest.approx(1.5, rel=0.01)
    assert biv.closed == pytest.approx(0.5, rel=0.02)
    assert biv.paper == (0.096, 0.006)
    text = tables.markdown(columns)
    assert "| 0.150 ± 0.001 * |" in re.sub(r" +\|", " |", text)
    assert "diverged 2/2" in text
    assert "not run" in text
    assert "N.A." in text
    rows = list(csv.DictReader(tables.comma_separated(columns).splitlines()))
    assert len(rows) == 24
    assert float(rows[5]["lowest"]) == pytest.approx(0.1505)
    assert rows[5]["best"] == "1"
    latex = tables.latex(columns)
    assert r"\mathbf{0.150} \pm 0.001" in latex or r"\mathbf{0.151} \pm 0.001" in latex
    assert latex.count(r"\\") == 9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table1", "fig05", "fig14"])
def test_figures_can_be_drawn_from_any_results(name, tmp_path):
    """Draw from all results, from some, from none; the same results give the same file."""
    _, results = table_results({})
    artefact = SMOKE[name]
    flat = np.linspace(1, 0.5, 40, dtype=np.float32)
    for run in artefact.runs(2):
        epochs = np.ones(20, dtype=np.float32)
        results.setdefault(run, RunResult(run, flat, epochs, epochs / 2, epochs, None, {}))
    part = {run: result for run, result in results.items() if run in artefact.runs(1)[:3]}
    assert part
    diverged = {run: replace(result, diverged_at=1) for run, result in results.items()}
    for available in (results, part, diverged, {}):
        paths = figures.save(figures.draw(artefact, available, 2), tmp_path, name)
        assert [p.suffix for p in paths] == [".svg", ".png"]
        first = paths[0].read_bytes()
        figures.save(figures.draw(artefact, available, 2), tmp_path, name)
        assert paths[0].read_bytes() == first
        assert artefact.label.encode() in first
    caption = figures.caption(artefact, {}, 2)
    assert f"{len(artefact.runs(2))} of {len(artefact.runs(2))} runs are missing" in caption


def test_panels_share_limits_that_include_all_labels():
    """Labels stay within the axes, and curves that end above them are marked with an arrow."""
    table, results = table_results({("α=1", "C=μ/20"): 0.9, ("α=0.25", "BIV"): 0.05})
    figure = figures.draw(table, results, 2, "A caption. " * 30)
    assert len({axis.get_ylim() for axis in figure.axes}) == 1
    low, high = figure.axes[0].get_ylim()
    assert low < 0.05
    for axis in figure.axes:
        labels = [text for text in axis.texts if text.get_text()]
        assert len(labels) == 8
        assert all(low <= text.xyann[1] <= high for text in labels)
    assert "C=μ/20 ↑" in [text.get_text() for text in figure.axes[0].texts]


def test_a_caption_describes_data_training_and_curves():
    whole = artefacts("bike", PRESETS["paper"])["fig03"]
    caption = figures.caption(whole, {}, 5)
    for phrase in (
        "Data: bike, 7,000 training rows",
        "3,379 test rows",
        "batch size 256",
        "every 256 samples",
        "100 epochs",
        "Adam with learning rate 0.001",
        "5 seeds",
        "one standard deviation",
    ):
        assert phrase in caption
    assert "The paper" not in caption.replace("the paper's network", "")
    assert "The paper shows this figure for faces" in figures.caption(SMOKE["fig06"], {}, 1)
    assert "batch size 16 to 256" in figures.caption(SMOKE["fig14"], {}, 1)
    laptop = artefacts("bike2011", PRESETS["laptop"])["table1"]
    assert "every 1,792 samples" in figures.caption(laptop, {}, 1)
    short = figures.caption(SMOKE["fig05"], {}, 1)
    assert "The paper uses all of Bike Sharing; these data are its first year." in short
    assert "The paper trains for 100 epochs" in short
    assert "one standard deviation within the epoch" in short


def test_a_method_has_one_colour_in_all_figures():
    by_method = {}
    for artefact in artefacts("bike", PRESETS["paper"]).values():
        for panel in artefact.panels:
            colours = figures.colours(panel)
            assert len({str(colour) for colour in colours}) == len(colours)  # distinct
            for line, colour in zip(panel.lines, colours, strict=True):
                if artefact.name not in ("fig01", "fig14", "fig15"):  # these vary something else
                    method = line.run.loss, line.run.noise == CLEAN
                    assert by_method.setdefault(method, colour) == colour
    assert len(set(map(str, by_method.values()))) == len(by_method) == 23
    for name, position in (("fig14", -1), ("fig15", 0)):  # the line with the setting of the table
        assert figures.colours(SMOKE[name].panels[0])[position] == figures.METHOD_COLOURS[BIV]


def test_the_numbers_of_a_figure_have_one_row_per_line():
    artefact = SMOKE["fig03"]
    step = np.arange(40)
    epochs = np.ones(20, dtype=np.float32)
    results = {
        run: RunResult(
            run,
            (0.2 + 0.01 * run.seed + 0.01 * abs(step - 20)).astype(np.float32),
            epochs,
            epochs / 2,
            epochs,
            None if run.loss.kind != "l2" or run.noise == CLEAN else 3,
            {},
        )
        for run in artefact.runs(2)
        if run.loss.threshold != 5.0
    }
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in lines.numbers(artefact, results, 2).splitlines()
    ]
    by_line = {row[1]: row[2:] for row in rows}
    assert by_line["line"] == ["lowest test loss", "at sample (thousands)", "last", "diverged"]
    # The lowest mean of 35 values is that of the values 3 to 37, at the 38th evaluation.
    assert by_line["BIV"] == ["0.292 ± 0.007", "10", "0.294", ""]
    assert by_line["L2"] == ["", "", "", "2/2"]
    assert by_line["C=5μ"] == ["not run", "", "", ""]
    training = lines.numbers(SMOKE["fig05"], results, 2)
    assert "| ε=0.05, normalised (BIV) | 0.50 " in training
    assert "| ε=0, normalised          | not run" in training
