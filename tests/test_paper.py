"""What is committed of the paper's reproduction is what its store says."""

import csv
import re
from pathlib import Path

import pytest

from biv.experiments.artefacts import PRESETS, artefacts
from biv.experiments.claims import claims
from biv.experiments.store import Store
from biv.report import claims as verdicts_report
from biv.report import figures, lines, tables

PAPER = Path(__file__).parent.parent / "paper"
RESULTS = PAPER / "results"
SEEDS = 5
ARTEFACTS = artefacts("bike", PRESETS["paper"])
CLAIMS = claims("bike", PRESETS["paper"])


@pytest.fixture(scope="module")
def store():
    return Store(RESULTS / "runs.sqlite")


@pytest.fixture(scope="module")
def readme():
    return (PAPER / "README.md").read_text(encoding="utf-8")


def read(name):
    return (RESULTS / name).read_text(encoding="utf-8")


# Of faces, a part: what a laptop trains in two hours.

FACES = artefacts("utkface", PRESETS["laptop"])["table1"].only(
    ["α=1", "α=0.25"], ["GT", "L2", "BIV", "IV", "C=μ"]
)
FACE_CLAIMS = claims("utkface", PRESETS["laptop"])


def read_faces(name):
    return (PAPER / "faces" / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def faces():
    return Store(PAPER / "faces" / "runs.sqlite")


def test_the_table_on_faces_is_that_of_its_store(faces):
    runs = FACES.runs(2)
    assert len(set(runs)) == 18
    assert faces.missing(runs) == []
    assert faces.failures() == []
    results = faces.results(runs)
    columns = tables.cells(FACES, results, 2)
    caption = figures.caption(FACES, results, 2)
    name = "table1-utkface-laptop-part"
    assert read_faces(f"{name}.md") == f"{tables.markdown(columns)}\n\n{caption}\n"
    assert read_faces(f"{name}.csv") == tables.comma_separated(columns)
    assert read_faces(f"{name}.tex") == tables.latex(columns)


def test_the_verdicts_on_faces_are_those_of_their_store(faces):
    runs = [run for claim in FACE_CLAIMS.values() for run in claim.runs(2)]
    found = [claim.test(faces.results(runs), 2) for claim in FACE_CLAIMS.values()]
    assert read_faces("claims-utkface-laptop.csv") == verdicts_report.comma_separated(found)
    assert verdicts_report.markdown(found, 2) in read_faces("claims-utkface-laptop.md")


def test_the_document_has_the_table_on_faces(readme):
    section = readme[readme.index("## On faces") :]
    for row in csv.DictReader(read_faces("table1-utkface-laptop-part.csv").splitlines()):
        shown = f"{float(row['lowest']):.2f}"
        if float(row["std"]):  # of more runs than one
            shown += f" ± {float(row['std']):.2f}"
        line = re.findall(rf"^\| \**{re.escape(row['method'])}\** \|(.*)\|$", section, re.M)[0]
        cells = [cell.strip(" *") for cell in line.split("|")[::2]]
        cell = cells[0 if row["noise"] == "α=1" or row["method"] == "GT" else 1]
        assert re.sub(r"\b0\.", ".", shown) == cell.split(",")[0]
        told = re.search(r"(\d)/2 diverged", cell)
        assert int(told[1] if told else 0) == int(row["diverged"])


def test_every_run_of_every_artefact_and_claim_is_there(store):
    things = (*ARTEFACTS.values(), *CLAIMS.values())
    assert store.missing([run for thing in things for run in thing.runs(SEEDS)]) == []
    assert store.failures() == []
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 11e6


@pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=ARTEFACTS)
def test_tables_and_captions_are_those_of_the_store(artefact, store):
    results = store.results(artefact.runs(SEEDS))
    caption = figures.caption(artefact, results, SEEDS)
    if artefact.name == "table1":
        columns = tables.cells(artefact, results, SEEDS)
        numbers = tables.markdown(columns)
        assert read("table1.csv") == tables.comma_separated(columns)
        assert read("table1.tex") == tables.latex(columns)
    else:
        numbers = lines.numbers(artefact, results, SEEDS)
    assert read(f"{artefact.name}.md") == f"{numbers}\n\n{caption}\n"
    for form in figures.FORMATS:
        assert (RESULTS / f"{artefact.name}.{form}").stat().st_size > 10_000


def test_verdicts_are_those_of_the_store(store):
    runs = [run for claim in CLAIMS.values() for run in claim.runs(SEEDS)]
    results = store.results(runs)
    found = [claim.test(results, SEEDS) for claim in CLAIMS.values()]
    assert read("claims.csv") == verdicts_report.comma_separated(found)
    assert verdicts_report.markdown(found, SEEDS) in read("claims.md")


def test_the_document_has_the_table_of_the_store(readme):
    rows = {}
    for row in csv.DictReader(read("table1.csv").splitlines()):
        numbers = [float(row[name]) for name in ("lowest", "std")]
        rows.setdefault(row["method"], []).append(" ± ".join(f"{n:.3f}"[1:] for n in numbers))
    for method, cells in rows.items():
        line = re.findall(rf"^\| \**{re.escape(method)}\** \|(.*)\|$", readme, re.MULTILINE)[0]
        shown = [cell.strip(" *") for cell in line.split("|")[::2]]
        wanted = cells if method != "GT" else [cells[0], "same", "same"]
        assert all(a.startswith(b) for a, b in zip(shown, wanted, strict=True)), method


def test_the_document_has_every_verdict_and_every_figure(readme):
    summary = [row for row in read("claims.md").splitlines() if re.match(r"\| \d+ +\|", row)]
    for row in summary[:20]:
        assert re.sub(r" +\|", " |", row) in readme
    for name in ARTEFACTS:
        assert f"biv reproduce {name}" in readme or re.search(
            rf"biv reproduce fig\d\d {name}", readme
        )
    for image in re.findall(r"\((results/[^)]+)\)", readme):
        assert (PAPER / image).exists()
