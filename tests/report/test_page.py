"""Test the text of reports: escaping, contents, and the errors of the command."""

import dataclasses
import itertools
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

import biv
from biv.cli import main
from biv.estimator.findings import FindingRecord
from biv.paper.artefacts import artefacts
from biv.paper.grid import BIV
from biv.paper.presets import PRESETS
from biv.paper.report import figures, paper_page, tables
from biv.paper.report.paper_page import _curves, _table
from biv.paper.store import Store
from biv.report import conclusions, model_page, training
from biv.report.charts import (
    CONTRAST,
    DARK_CONTRAST,
    DARK_PAGE,
    LIGHT_PAGE,
    Chart,
    Colour,
    Panel,
    Series,
    contrast,
    rounded,
)
from biv.report.model_page import comparison as comparison_section
from biv.report.page import Page
from biv.report.parts import Cell, Commands, Section, Table, Text, clean, quoted
from biv.workflows import ModelFolder
from biv.workflows.comparison_record import ComparisonRecord, Effect, MethodRecord
from helpers.commands import COLUMNS, SMALL, data
from helpers.paper_runs import results_of

pytest.importorskip("plotly", reason="reports need plotly")
BAD = "</script><script>alert(1)</script>\"'<!-- ]]> \u2028 &lt;"
RAW = ("<script>alert", "<!-- ]]>", "'<!--")


class Elements(HTMLParser):
    """Names, attributes and texts of the elements of a page."""

    def __init__(self, text):
        super().__init__()
        self.names, self.texts, self.attributes = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_data(self, data):
        self.texts.append(data)


def page_of(*parts, **more):
    return Page("t", "about", "conclusion", [Section("one", "One", parts)], **more)


def chart(name="a", **more):
    panel = Panel(name, name, name, [Series(name, [1.0, 2.0], [0.1, math.nan])], name, **more)
    return Chart("c", name, [panel], dict.fromkeys((name, "b"), Colour("#000000", "#ffffff")))


def test_texts_are_escaped_everywhere():
    table = Table("t", BAD, [BAD, "b"], [[BAD, Cell(BAD, BAD)]])
    parts = [Text(BAD), Commands([BAD]), table, chart(BAD)]
    whole = Page(
        BAD, BAD, BAD, [Section("one", BAD, parts)], footer=BAD, more_conclusions=[BAD]
    ).html()
    elements = Elements(re.sub(r"<script.*?</script>", "", whole, flags=re.DOTALL))
    assert "script" not in elements.names
    assert sum(BAD in text for text in elements.texts) >= 8
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", whole, re.DOTALL)
    assert len(scripts) == 3
    charts = json.loads(scripts[0])
    assert charts["c"]["panels"][0]["title"] == BAD
    assert not any(raw in scripts[0] for raw in RAW)


def test_the_policy_forbids_requests_and_other_scripts():
    one, two = page_of(Text("a")).html(), page_of(Text("b")).html()
    policies = [re.search(r'Policy" content="([^"]+)"', text).group(1) for text in (one, two)]
    assert all(policy.startswith("default-src 'none'; script-src 'nonce-") for policy in policies)
    assert policies[0] != policies[1]  # the nonce depends on the contents
    assert one == page_of(Text("a")).html()
    nonce = re.search(r"'nonce-(\w{64})'", one).group(1)
    assert one.count(f'<script nonce="{nonce}">') == 2
    links = re.findall(r'(?:src|href)="([^"]*)"', one.split("<script", 1)[0])
    assert links
    assert all(link.startswith("#") for link in links)


def test_characters_that_cannot_be_encoded_are_replaced(tmp_path):
    name = "bad \udc80 \x07 name"
    path = Page(name, name, name, [], parts=[Text(name)]).write(tmp_path / "r.html")
    assert path.read_text(encoding="utf-8").count("bad � � name") == 5


def test_long_names_are_shortened():
    assert clean("x" * 10_000, 80) == "x" * 79 + "…"
    heading = Page("y" * 10_000, "", "", []).html()
    assert "y" * 201 not in heading


@pytest.mark.parametrize("colour", [*figures.METHOD_COLOURS.values(), "#bddf26", "#440154"])
def test_colours_have_enough_contrast_on_light_and_dark_pages(colour):
    light, dark = Colour.from_hex(colour)
    assert contrast(light, LIGHT_PAGE) >= CONTRAST
    assert contrast(dark, DARK_PAGE) >= DARK_CONTRAST


def test_background_colours_agree_with_the_style_sheet():
    style = (Path(biv.__file__).parent / "report/assets/report.css").read_text(encoding="utf-8")
    backgrounds = re.findall(r"--panel: (#\w{6})", style)
    assert set(backgrounds) == {LIGHT_PAGE, DARK_PAGE}


def test_lines_can_be_distinguished_without_colours():
    names = ["L2", "BIV", "GT", "C"]
    chart = Chart("c", "", [], dict.fromkeys(names, Colour("#000000", "#ffffff")))
    styles = chart.to_json()["names"]
    assert [style["name"] for style in styles] == names
    assert styles[1]["dash"] == "solid"
    assert len({style["dash"] for style in styles}) == 4


def test_numbers_of_a_chart_are_rounded_and_never_nan():
    assert rounded([1 / 3, math.inf, -math.nan, 12_345_678.9]) == [0.33333, None, None, 12_346_000]
    text = json.dumps(chart().to_json(), allow_nan=False)
    assert "NaN" not in text


def test_every_artefact_is_drawn_and_described(tmp_path):
    """Check panels, colours, bands and descriptions on made-up results."""
    store = Store(tmp_path / "runs.sqlite")
    grid = artefacts("bike2011", PRESETS["smoke"])
    runs = list(dict.fromkeys(run for a in grid.values() for run in a.runs(2)))
    results = results_of(runs)
    store.add(results.values())
    (chosen,) = paper_page.contents(store)
    assert (chosen.dataset, chosen.preset, chosen.seeds) == ("bike2011", "smoke", 2)
    page = paper_page.page(store, chosen, "results")
    charts = {chart.key: chart for chart in page.charts()}
    assert {"table1-beside", "table1-curves", *(f"fig{k:02}" for k in range(1, 16))} == set(charts)
    for name, artefact in grid.items():
        drawn = charts["table1-curves" if name == "table1" else name]
        for panel, shown in zip(artefact.panels, drawn.panels, strict=True):
            assert [line.label for line in panel.lines] == [s.name for s in shown.series]
            for series in shown.series:
                assert len(series.x) == len(series.y) <= _curves.POINTS
                assert series.name in drawn.colours
                assert series.name in shown.description
                assert (np.array(series.low) <= np.array(series.y)).all()
                assert (np.array(series.high) >= np.array(series.y)).all()


def test_a_thinned_curve_keeps_its_first_and_last_point():
    assert _curves.thinned(3).tolist() == [0, 1, 2]
    places = _curves.thinned(2_000)
    assert (places[0], places[-1], len(places)) == (0, 1999, _curves.POINTS)


def test_gauges_show_differences_to_the_paper():
    lower, higher, same = (_table.gauge(apart) for apart in (-0.1, 3.0, 0.001))
    assert (lower.text, higher.text, same.text) == ("10% lower", "300% higher", "the same")
    widths = [
        float(re.search(r'width="([\d.]+)"', cell.drawing).group(1)) for cell in (lower, higher)
    ]
    assert widths == [
        pytest.approx(7.0),
        pytest.approx(28.0),
    ]  # the largest difference fills its half
    assert _table.gauge(math.nan).text == ""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    path = data(folder / "data.csv")
    options = [str(path), *COLUMNS, *SMALL, "--out", str(folder / "model")]
    assert main(["train", *options]) == 0
    return folder / "model"


def texts(page):
    return " ".join(Elements(page.html().split('<script type="application/json"', 1)[0]).texts)


def test_a_report_without_a_comparison_says_how_to_run_one(model):
    page = model_page.build_model_page(ModelFolder.read(model), "model")
    text = texts(page)
    table = model.parent / "data.csv"
    assert f"biv compare {table} --target y --target-std s --features " in text
    assert page.conclusion.endswith("The error bars look right.")
    assert "is the only limit, weighting helps as much as having" in page.more_conclusions[1]
    assert f"biv train {model.parent / 'data.csv'} --target y" in text


def test_a_report_is_rebuilt_from_the_model_folder_alone(model, tmp_path, capsys):
    (model.parent / "data.csv").rename(tmp_path / "elsewhere.csv")
    try:
        assert main(["report", str(model), "-o", str(tmp_path / "again.html")]) == 0
    finally:
        (tmp_path / "elsewhere.csv").rename(model.parent / "data.csv")
    assert capsys.readouterr().out.strip() == str(tmp_path / "again.html")
    again, first = (
        (tmp_path / "again.html").read_text("utf-8"),
        (model / "report.html").read_text("utf-8"),
    )
    assert again == first


def test_a_model_without_error_bars_has_a_report(model, tmp_path):
    table = model.parent / "data.csv"
    options = ["--target", "y", "--ignore", "s", *SMALL, "--out", str(tmp_path / "m")]
    assert main(["train", str(table), *options]) == 0
    text = texts(model_page.build_model_page(ModelFolder.read(tmp_path / "m"), "m"))
    assert "There were no error bars" in text
    assert "Gain from weighting" not in text
    assert "Calibration of the intervals" in text


@pytest.mark.parametrize(
    ("recommendation", "first"),
    [
        ("Use the error bars: with them 5.0% lower than without. The lowest is BIV.",
         "Use the error bars: with them 5.0% lower than without."),
        ("These labels do not decide it. Error bars go with the label.", "These labels do not decide it."),
        ("Do not use them.", "Do not use them."),
    ],
)  # fmt: skip
def test_the_recommendation_comes_first(model, recommendation, first):
    folder = ModelFolder.read(model)
    compared = dataclasses.replace(
        comparison_record(0.0, 0.4, 0.6, 0.8), recommendation=recommendation
    )
    summary = conclusions.from_comparison(compared)
    assert summary.verdict == first
    assert " ".join([first, *summary.details]) == recommendation
    page = model_page.build_model_page(dataclasses.replace(folder, comparison=compared), "m")
    assert page.conclusion == f"{first} {conclusions.quality_of_model(folder.about.result)}"


@pytest.mark.parametrize(
    ("worth", "message"),
    [(1.02, "differ too little"), (2.5, "2.5 times as many labels"), (None, "no noise at all")],
)
def test_the_expected_gain_is_the_conclusion(model, worth, message):
    folder = ModelFolder.read(model)
    bars = dataclasses.replace(folder.evidence.bars, worth=worth)
    evidence = msgspec.structs.replace(folder.evidence, bars=bars)
    folder = dataclasses.replace(folder, evidence=evidence)
    assert message in model_page.build_model_page(folder, "m").more_conclusions[1]
    assert message in " ".join(training.text(folder).split())


def page_with(model, **result):
    """Return the page of a model with other values in the result of its fit."""
    folder = ModelFolder.read(model)
    about = dataclasses.replace(
        folder.about, result=dataclasses.replace(folder.about.result, **result)
    )
    return model_page.build_model_page(dataclasses.replace(folder, about=about), "m")


def test_conclusions_of_a_page_agree_with_those_of_the_command(model):
    folder = ModelFolder.read(model)
    assert folder.about.result.finding == folder.evidence.finding
    finding = folder.about.result.finding
    sentence = f"{finding.text[0].upper()}{finding.text[1:]}."
    assert sentence == page_with(model).more_conclusions[0]
    wrong = FindingRecord(kind="too large", text="the error bars are larger than the noise")
    page = page_with(model, finding=wrong)
    assert page.conclusion == (
        "The error bars are larger than the noise of the labels. Until this is resolved, scores "
        "that rest on them mean nothing."
    )
    assert page.more_conclusions == ["The error bars are larger than the noise."]
    page = page_with(model, r2=0.6, r2_stderr=0.01, r2_all_labels_alike=0.9,
                    r2_all_labels_alike_stderr=0.01)  # fmt: skip
    assert page.more_conclusions[1].startswith("R² depends on the weights: 0.600 weighted ")
    caveat = page_with(model, rank_correlation_with_label=0.5).more_conclusions[1]
    assert caveat.startswith("Larger labels have larger error bars (rank correlation +0.50), ")


def test_a_model_that_predicts_nothing_says_so_first(model):
    page = page_with(model, r2=0.003, r2_stderr=0.01, r2_all_labels_alike=0.003)
    assert page.conclusion.startswith(
        "The model predicts next to nothing of these labels (R² 0.003"
    )
    assert "weighting helps as much as" in page.more_conclusions[1]


@pytest.mark.parametrize(
    ("r2", "start"),
    [
        (0.9, "The model explains 90% of the variance of the true labels (R² 0.900 ± 0.010"),
        (0.991, "The model explains 99.1% of the variance"),
        (1.01, "The model explains more than 99.9% of the variance"),
        (1.05, "How good the model is cannot be measured with these error bars (R² 1.050"),
        (None, "R² of the model is undefined: the labels vary no more than their noise explains."),
    ],
)
def test_a_page_states_how_good_the_model_is(model, r2, start):
    assert page_with(model, r2=r2, r2_stderr=0.01).conclusion.startswith(start)


def test_replaced_error_bars_are_marked_as_assumed(tmp_path):
    table = data(tmp_path / "data.csv")
    frame = pd.read_csv(table)
    frame.loc[[4, 9], "s"] = np.nan
    frame.loc[4, "y"] += 1e4
    frame.to_csv(table, index=False)
    options = [*COLUMNS, *SMALL, "--unknown-variance", "median", "--out", str(tmp_path / "m")]
    assert main(["train", str(table), *options]) == 0
    folder = ModelFolder.read(tmp_path / "m")
    assert folder.evidence.bars.count == 148
    first = folder.evidence.outliers[0]
    assert (first.where, first.sigma_unknown) == (f"{table}, row 5", True)
    text = texts(model_page.build_model_page(folder, "m"))
    assert "(assumed)" in text
    assert "σ² of 148 labels that have an error bar (of 150 labels)" in text


def test_a_streamed_model_shows_the_error_bars_of_held_out_rows(model):
    folder = ModelFolder.read(model)
    evidence = msgspec.structs.replace(folder.evidence, rows=6_000)
    text = texts(model_page.build_model_page(dataclasses.replace(folder, evidence=evidence), "m"))
    assert "σ² of 150 held-out labels (of 6,000 labels)" in text


def comparison_record(*above):
    names = ["BIV", "L2", "BIV, shuffled variances", "linear, weighted"]
    methods = [
        MethodRecord(
            method=name,
            mse=1 + a,
            mse_stderr=0.5,
            above_best=a,
            above_best_stderr=0.1,
            as_good_as_best=False,
            seconds=1.0,
            chosen="",
        )
        for name, a in zip(names, above, strict=True)
    ]
    lower = Effect(0.1, 0.0, 0.2)
    return ComparisonRecord(
        target="y",
        rows=100,
        rows_in_all=100,
        folds=5,
        label_variance=2.0,
        methods=methods,
        failed={},
        gain=lower,
        control=lower,
        gain_all_labels_alike=None,
        recommendation="Use them.",
    )


def test_methods_are_drawn_by_their_paired_differences():
    (panel,) = comparison_section.methods_chart(comparison_record(0.0, 0.4, 0.8, 0.6)).panels
    first = panel.series[0]
    assert (list(first.x), list(first.y)) == ([0.0], ["BIV"])
    others = dict(zip(panel.series[2].y, panel.series[2].x, strict=True))
    assert others == {"L2": 0.2, "linear, weighted": 0.3}
    assert panel.series[2].high[0] == pytest.approx(0.2 + 1.96 * 0.05)
    assert panel.x_range is None


def test_a_very_bad_method_does_not_compress_the_others():
    chart = comparison_section.methods_chart(comparison_record(0.0, 0.4, 0.6, 4e5))
    assert chart.panels[0].x_range[1] < 10
    assert "Beyond the end of the axis: linear, weighted." in chart.caption


def test_runs_on_faces_have_a_report(tmp_path):
    """Use the runs on faces, whose batches are not of the usual size."""
    store = Store(Path(__file__).parents[2] / "paper/faces/runs.sqlite")
    (chosen,) = paper_page.contents(store)
    page = paper_page.page(store, chosen, "paper/faces")
    colours = next(c for c in page.charts() if c.key == "table1-curves").colours
    assert colours["BIV"] == Colour.from_hex(figures.METHOD_COLOURS[BIV])
    assert page.write(tmp_path / "faces.html").stat().st_size < 8e6


def test_incomplete_figures_are_not_shown(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    grid = artefacts("bike2011", PRESETS["smoke"])
    store.add(results_of(grid["table1"].runs(1)).values())
    page = paper_page.page(store, paper_page.contents(store)[0], "results")
    keys = {chart.key for chart in page.charts()}
    assert {"table1-curves", "fig03", "fig12"} <= keys  # all their panels have lines
    assert not {"fig02", "fig09", "fig14"} & keys
    (claims,) = [section for section in page.sections if section.key == "claims"]
    assert ">not run<" not in claims.parts[1].html()
    assert len(claims.parts[1].rows) < 20


def test_values_and_spreads_have_columns_of_their_own(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    grid = artefacts("bike2011", PRESETS["smoke"])
    results = results_of(grid["table1"].runs(3))
    columns = tables.cells(grid["table1"], results, 3)
    table = _table.cells(columns)
    first = columns[0][0].ours
    values = dict(zip(table.columns, (cell.raw for cell in table.rows[0]), strict=True))
    assert float(values["ours"]) == first.lowest
    assert float(values["± ours"]) == first.lowest_std
    assert (values["paper"], values["± paper"]) == ("0.327", "0.056")
    assert len(store) == 0


def test_whole_numbers_have_no_decimal_point():
    assert (Cell("5", 5.0).raw, Cell("x", 0.5).raw, Cell("", math.nan).raw) == ("5", "0.5", "")


def test_names_are_isolated_from_the_direction_of_their_context():
    assert quoted("\u202eabc").startswith("“\u2068")
    assert quoted("\u202eabc").endswith("\u2069”")


def test_a_report_can_be_written_into_the_model_folder(model, tmp_path, capsys):
    table, out = model.parent / "data.csv", tmp_path / "m"
    assert (
        main(
            [
                "train",
                str(table),
                *COLUMNS,
                *SMALL,
                "--out",
                str(out),
                "--report",
                str(out / "page.html"),
            ]
        )
        == 0
    )
    assert (out / "page.html").is_file()
    assert "does not exist" in fails(
        capsys,
        "train",
        table,
        *COLUMNS,
        "--out",
        tmp_path / "n",
        "--report",
        tmp_path / "o" / "p.html",
    )


def fails(capsys, *arguments):
    assert main([str(a) for a in arguments]) == 2
    return capsys.readouterr().err


def test_invalid_sources_are_refused(model, tmp_path, capsys):
    assert "nowhere does not exist" in fails(capsys, "report", "nowhere")
    assert "must be a model folder" in fails(capsys, "report", tmp_path)
    (tmp_path / "runs.sqlite").write_text("no store")
    assert "is not a store" in fails(capsys, "report", tmp_path)
    assert "--comparison requires a model folder" in fails(
        capsys, "report", tmp_path, "--comparison", "c.json"
    )
    assert "require a store of runs" in fails(capsys, "report", model, "--preset", "paper")
    Store(tmp_path / "empty" / "runs.sqlite")
    assert "it has no runs" in fails(capsys, "report", tmp_path / "empty")
    assert not list(tmp_path.glob("*.html"))


def test_an_existing_file_is_not_overwritten(model, tmp_path, capsys):
    out = tmp_path / "r.html"
    out.write_text("mine")
    assert "--force replaces it" in fails(capsys, "report", model, "-o", out)
    assert out.read_text() == "mine"
    assert main(["report", str(model), "-o", str(out), "--force"]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "must end in .html" in fails(capsys, "report", model, "-o", tmp_path / "r.pdf")
    assert "no does not exist" in fails(capsys, "report", model, "-o", tmp_path / "no" / "r.html")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "must be what `biv compare --json` prints"),
        ("[]", "must be what `biv compare --json` prints"),
        ('{"target": "y", "methods": [{"method": 3}]}', "methods[0].method must be str; got int"),
    ],
)
def test_an_invalid_comparison_is_refused(model, tmp_path, capsys, content, message):
    (tmp_path / "c.json").write_text(content)
    assert message in fails(capsys, "report", model, "--comparison", tmp_path / "c.json")
    with pytest.raises(ValueError, match="biv compare --json"):
        ComparisonRecord.read(Path(__file__), "y")


def test_without_plotly_only_the_report_is_missing(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setattr("importlib.util.find_spec", _without("plotly"))
    assert "pip install plotly, or biv[report]" in fails(capsys, "report", model)
    table = model.parent / "data.csv"
    small = [*COLUMNS, *SMALL, "--out", str(tmp_path / "m")]
    assert main(["train", str(table), *small]) == 0
    assert "no report is written, because plotly is not installed" in capsys.readouterr().err
    assert not (tmp_path / "m" / "report.html").exists()
    assert "needs plotly" in fails(
        capsys, "train", table, *COLUMNS, "--out", tmp_path / "n", "--report", tmp_path / "n.html"
    )
    assert not (tmp_path / "n").exists()  # the error comes before the training


def _without(name):
    from importlib.util import find_spec

    return lambda module, *rest: None if module == name else find_spec(module, *rest)


def test_a_folder_of_an_older_version_is_refused(model, tmp_path, capsys):
    folder = ModelFolder.read(model)
    dataclasses.replace(folder, evidence=None).write(tmp_path)
    assert "has no evidence.json" in fails(capsys, "report", tmp_path)
    (tmp_path / "evidence.json").write_text('{"format": "biv evidence 0"}')
    assert "got 'biv evidence 0'" in fails(capsys, "report", tmp_path)
    (tmp_path / "evidence.json").write_text("{")
    assert "evidence.json is damaged" in fails(capsys, "report", tmp_path)
    table = model.parent / "data.csv"  # predictions do not need it
    assert main(["predict", str(tmp_path), str(table), "--out", str(tmp_path / "p.csv")]) == 0


def test_a_store_with_several_data_sets_says_which_is_shown(tmp_path, capsys):
    store = Store(tmp_path / "runs.sqlite")
    for dataset, seeds in (("bike2011", 2), ("bike", 1)):
        grid = artefacts(dataset, PRESETS["smoke"])
        store.add(results_of(grid["fig03"].runs(seeds)).values())
    assert [c.dataset for c in paper_page.contents(store)] == ["bike2011", "bike"]
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "a.html")]) == 0
    assert "use --dataset and --preset to choose another" in capsys.readouterr().err
    options = ["--dataset", "bike", "-o", str(tmp_path / "b.html")]
    assert main(["report", str(tmp_path), *options]) == 0
    assert "note" not in capsys.readouterr().err
    titles = [(tmp_path / f"{name}.html").read_text("utf-8").split("<p>", 2)[1] for name in "ab"]
    assert "first year of Bike" in titles[0]
    assert "on Bike Sharing" in titles[1]
    for path, other in itertools.pairwise([tmp_path / "a.html", tmp_path / "b.html"]):
        assert path.read_bytes() != other.read_bytes()
