"""Test that the committed tables, captions, verdicts and pages agree with the stored runs."""

import csv
import re
from pathlib import Path

import pytest

from biv.paper.artefacts import artefacts
from biv.paper.claims import claims
from biv.paper.presets import PRESETS
from biv.paper.report import claims as verdicts_report
from biv.paper.report import figures, lines, tables
from biv.paper.store import Store

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "paper"
RESULTS = PAPER / "results"
PAGES = ROOT / "docs" / "paper"
DOCUMENTS = [PAPER / "README.md", *sorted(PAGES.glob("*.md"))]
SEEDS = 5
ARTEFACTS = artefacts("bike", PRESETS["paper"])
CLAIMS = claims("bike", PRESETS["paper"])


@pytest.fixture(scope="module")
def store():
    return Store(RESULTS / "runs.sqlite")


def read(name):
    return (RESULTS / name).read_text(encoding="utf-8")


def read_page(name):
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def commands(page):
    """Return the lines of the shell blocks of a page."""
    return [
        line for block in re.findall(r"```sh\n(.*?)```", page, re.S) for line in block.split("\n")
    ]


def sections(page):
    """Return the text below each second-level heading, by heading."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# Faces: the part of the table that a laptop trains in two hours.

FACES = artefacts("utkface", PRESETS["laptop"])["table1"].only(
    ["α=1", "α=0.25"], ["GT", "L2", "BIV", "IV", "C=μ"]
)
FACE_CLAIMS = claims("utkface", PRESETS["laptop"])


def read_faces(name):
    return (PAPER / "faces" / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def faces():
    return Store(PAPER / "faces" / "runs.sqlite")


def test_the_table_on_faces_agrees_with_its_store(faces):
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


def test_the_verdicts_on_faces_agree_with_their_store(faces):
    runs = [run for claim in FACE_CLAIMS.values() for run in claim.runs(2)]
    verdicts = [claim.test(faces.results(runs), 2) for claim in FACE_CLAIMS.values()]
    assert read_faces("claims-utkface-laptop.csv") == verdicts_report.comma_separated(verdicts)
    assert verdicts_report.markdown(verdicts, 2) in read_faces("claims-utkface-laptop.md")


def test_the_page_on_faces_has_the_table_of_its_store():
    page = read_page("faces")
    for row in csv.DictReader(read_faces("table1-utkface-laptop-part.csv").splitlines()):
        shown = f"{float(row['lowest']):.2f}"
        if float(row["std"]):  # several runs
            shown += f" ± {float(row['std']):.2f}"
        line = re.findall(rf"^\| \**{re.escape(row['method'])}\** \|(.*)\|$", page, re.M)[0]
        cells = [cell.strip(" *") for cell in line.split("|")[::2]]
        cell = cells[0 if row["noise"] == "α=1" or row["method"] == "GT" else 1]
        assert shown == cell.split(",")[0]
        diverged = re.search(r"(\d)/2 diverged", cell)
        assert int(diverged[1] if diverged else 0) == int(row["diverged"])
    assert "(../../paper/faces/table1-utkface-laptop-part.png)" in page
    common = "--stored --dataset utkface --preset laptop --seeds 2"
    assert f"biv reproduce table1 {common} \\" in commands(page)
    assert f"biv claims {common} --out paper/faces" in commands(page)


def test_every_run_of_every_artefact_and_claim_is_stored(store):
    every = (*ARTEFACTS.values(), *CLAIMS.values())
    assert store.missing([run for one in every for run in one.runs(SEEDS)]) == []
    assert store.failures() == []
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 11e6


@pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=ARTEFACTS)
def test_tables_and_captions_agree_with_the_store(artefact, store):
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


def test_verdicts_agree_with_the_store(store):
    runs = [run for claim in CLAIMS.values() for run in claim.runs(SEEDS)]
    results = store.results(runs)
    verdicts = [claim.test(results, SEEDS) for claim in CLAIMS.values()]
    assert read("claims.csv") == verdicts_report.comma_separated(verdicts)
    assert verdicts_report.markdown(verdicts, SEEDS) in read("claims.md")


# The pages: one per artefact, with numbers that agree with the store.


@pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=ARTEFACTS)
def test_every_artefact_has_a_page_of_one_shape(artefact):
    name, page = artefact.name, read_page(artefact.name)
    number = name.removeprefix("fig").removeprefix("table")
    kind = "Table" if name == "table1" else "Figure"
    assert page.startswith(f"# {kind} {int(number)}: ")
    assert f"`{artefact.label}`" in page
    numbers, caption = read(f"{name}.md").rstrip("\n").split("\n\n")
    assert f"\n\n{numbers}\n\n{caption}\n\n" in page
    (description,) = re.findall(rf"!\[(.+)\]\(\.\./\.\./paper/results/{name}\.png\)", page)
    assert len(description) > 60, "the picture needs a description"
    draw = f"biv reproduce {name} --stored --out paper/results"
    train = f"biv reproduce {name} --out results"
    assert [line for line in commands(page) if line] == [draw, train]
    below = sections(page)
    assert list(below) == [
        "Run it",
        "Result",
        "What it means",
        "Comparison with the paper",
        "How the paper was read",
    ]
    assert below["Run it"].lstrip().startswith(f"{len(artefact.runs(SEEDS))} runs: ")
    assert numbers in below["Result"]
    assert below["What it means"].strip()
    assert "**Verdict:" in below["Comparison with the paper"]
    assert "](../../paper/DEVIATIONS.md)" in below["How the paper was read"]


def test_the_index_lists_all_pages():
    index = read_page("index")
    names = sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "index")
    assert sorted([*ARTEFACTS, "claims", "faces", "deviations"]) == names
    listed = re.findall(r"^- \[.+?\]\((\w+)\.md\): .+", sections(index)["The pages"], re.MULTILINE)
    in_tree = index[index.index("```{toctree}\n:hidden:\n") :].split("\n")[2:-2]
    assert listed == in_tree == [*ARTEFACTS, "claims", "faces", "deviations"]
    assert index.endswith("\n```\n")
    assert read_page("deviations") == "```{include} ../../paper/DEVIATIONS.md\n```\n"


def test_the_index_has_the_table_of_the_store():
    index = read_page("index")
    rows = {}
    for row in csv.DictReader(read("table1.csv").splitlines()):
        rows.setdefault(row["method"], []).append((_short(row, "lowest", "std"), row))
    for method, cells in rows.items():
        line = re.findall(rf"^\| \**{re.escape(method)}\** \|(.*)\|$", index, re.MULTILINE)[0]
        shown = [cell.strip(" *") for cell in line.split("|")]
        for k, (ours, row) in enumerate(cells):
            if method == "GT" and k:
                assert shown[2 * k : 2 * k + 2] == ["same", "same"]
                continue
            diverged = (
                f", {row['diverged']}/{row['runs']} diverged" if row["diverged"] != "0" else ""
            )
            printed = _short(row, "paper", "paper_std") if row["paper"] else "all diverged"
            assert shown[2 * k : 2 * k + 2] == [ours + diverged, printed], method


def _short(row, *names):
    return " ± ".join(f"{float(row[name]):.3f}" for name in names)


def summary():
    """Return the rows of the table of verdicts, without the spaces that align them."""
    rows = [row for row in read("claims.md").splitlines() if re.match(r"\| \d+ +\|", row)]
    return [re.sub(r" +\|", " |", row) for row in rows[: len(CLAIMS)]]


@pytest.mark.parametrize("name", ["index", "claims"])
def test_a_page_has_every_verdict(name):
    page = read_page(name)
    shown = [row for row in page.splitlines() if re.match(r"\| \d+ \|", row)]
    assert shown == summary()
    totals = read("claims.md").split("\n")[2]
    held, failed, undecided = re.findall(r"(\d+) (?:hold|fail|undecided)\b", totals)
    sentence = f"{held} hold, {failed} fail and {undecided} are undecided"
    assert sentence in " ".join(page.split())


def test_every_claim_has_a_section():
    below = sections(read_page("claims"))
    for row in summary():
        number, statement, verdict = (cell.strip() for cell in row.strip("|").split("|"))
        (section,) = [
            text for title, text in below.items() if title.startswith(f"Claim {number}: ")
        ]
        one_line = " ".join(section.split())
        assert f"*{statement}.* **Verdict: {verdict}.**" in one_line
        assert re.search(r"\[(Figure|Table) \d+\]\(\w+\.md\)|No figure shows ", one_line)
    assert sum(title.startswith("Claim ") for title in below) == len(CLAIMS)


def test_the_claims_page_has_the_verdicts_of_twenty_seeds():
    section = sections(read_page("claims"))["With twenty seeds"]
    shown = re.findall(r"^\| \[(\d+)\]\(.+?\) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    at_five = [[cell.strip() for cell in row.strip("|").split("|")] for row in summary()]
    verdicts = {number: verdict for number, _, verdict in at_five}
    expected = re.findall(
        r"^ *(\d+)  .+\n +((?:holds|FAILS|undecided).*)$", read("claims-20-seeds.txt"), re.MULTILINE
    )
    assert shown == [(number, verdicts[number], verdict) for number, verdict in expected]
    numbers = " ".join(number for number, _ in expected)
    assert f"biv claims {numbers} --seeds 20 " in section


def test_intervals_on_the_pages_agree_with_the_verdicts():
    """Intervals may be of five seeds or twenty. Claim 2 also has those of L2 / GT, twice L2 / 2 GT."""
    with (RESULTS / "claims.csv").open(encoding="utf-8") as file:
        known = [(row["low"], row["high"]) for row in csv.DictReader(file) if row["low"]]
    known += re.findall(r"(\d+\.\d+) to (\d+\.\d+)", read("claims-20-seeds.txt"))
    intervals = [tuple(map(float, ends)) for ends in known]
    intervals += [(2 * low, 2 * high) for low, high in intervals]
    printed = [
        ends
        for path in PAGES.glob("*.md")
        if path.stem != "faces"
        for ends in re.findall(
            r"(?:interval |\(|\| )(\d*\.\d{2,}) to (\d*\.\d{2,})",
            " ".join(path.read_text("utf-8").split()),
        )
    ]
    assert len(printed) > 50
    for ends in printed:
        digits = [len(end.partition(".")[2]) for end in ends]
        assert any(
            tuple(map(round, interval, digits)) == tuple(map(float, ends)) for interval in intervals
        ), ends


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_links_of_a_page_have_targets(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = [
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings
            ]
            assert anchors.count(anchor) == 1, link
