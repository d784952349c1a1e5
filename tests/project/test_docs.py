"""The documentation: every block runs, every link works, and the site builds without warnings."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from types import ModuleType
from urllib.parse import unquote

import pytest
import torch
import yaml

import biv
from biv.paper import sweep
from biv.paper.store import Store
from helpers import doc_blocks, doc_pages
from helpers.paper_runs import InProcessWorkers

ROOT, DOCS = doc_pages.ROOT, doc_pages.DOCS
DOCUMENTS = doc_pages.documents()
# Scripts for torchrun, which test_distributed_docs.py runs.
ELSEWHERE = {("docs/distributed.md", "python")}

# A block of a page that another document repeats to the letter is run once, on the page.
OF_PAGES = {
    block.text
    for name, path in DOCUMENTS.items()
    if name.startswith("docs/")
    for block in doc_pages.blocks(path)
}


def to_run(name):
    """Return the blocks of a document that are run."""
    runnable = [
        block for block in doc_pages.blocks(DOCUMENTS[name]) if block.language in doc_pages.RUN
    ]
    if not name.startswith("docs/"):
        runnable = [block for block in runnable if block.text not in OF_PAGES]
    return [block for block in runnable if (name, block.language) not in ELSEWHERE]


RUNNABLE = [name for name in DOCUMENTS if to_run(name)]


# Blocks.


@pytest.mark.parametrize("name", DOCUMENTS)
def test_blocks_have_a_known_language(name):
    text = DOCUMENTS[name].read_text(encoding="utf-8")
    blocks = doc_pages.blocks(DOCUMENTS[name])
    assert len(re.findall(r"^```", text, flags=re.M)) == 2 * len(blocks), "a block is not closed"
    assert not re.search(r"^([ \t]+```|[ \t]*~~~)", text, flags=re.M), (
        "a block that is indented or uses ~~~ would not be run"
    )
    bare = name == "ARCHITECTURE.md"  # its drawing has no language
    allowed = {*doc_pages.RUN, *doc_pages.SHOWN} | ({""} if bare else set())
    assert {block.language for block in blocks} <= allowed


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNABLE)
def test_every_block_runs(name, tmp_path, monkeypatch, capsys):
    folder = doc_pages.clone(tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BIV_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setattr(sweep, "workers_for", lambda *_: InProcessWorkers())
    doc_blocks.run_blocks(
        to_run(name), name, folder, doc_blocks.run_in_this_process, apart=name == "README.md"
    )  # readers copy single blocks of the README
    capsys.readouterr()


@pytest.mark.slow
def test_a_wrong_block_fails(tmp_path):
    """Each of the three ways to run a block can fail."""
    with pytest.raises(ZeroDivisionError):
        doc_blocks.run_python(doc_pages.Block("python", "1 / 0", 1), "page", {})
    with pytest.raises(AssertionError, match="Expected"):
        doc_blocks.run_doctest(doc_pages.Block("pycon", ">>> 1 + 1\n3\n", 1), "page", {})
    for wrong in ("biv docs nowhere", "make nothing", "pip install '.[nothing]'", "false"):
        block = doc_pages.Block("sh", wrong, 7)
        with pytest.raises(AssertionError, match="line 7"):
            doc_blocks.run_commands(block, tmp_path, doc_blocks.run_in_this_process)


def test_the_first_block_of_the_readme_learns():
    """The error of its model is close to the one that it prints."""
    namespace = {}
    exec(
        next(b.text for b in doc_pages.blocks(ROOT / "README.md") if b.language == "python"),
        namespace,
    )
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        error = (namespace["model"](x)[:, 0] - x.sum(dim=1) / 3**0.5).square().mean()
    assert error < 0.1


# Links and names.


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_name_what_exists(name):
    path = DOCUMENTS[name]
    text = path.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([\w-]+)", text):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target
    for named in re.findall(
        r"`((?:src|tests|paper|benchmarks|examples|docs)/[\w/.-]+\.\w+)`", text
    ):
        assert (ROOT / named).exists(), named
    for link in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", text):
        assert (path.parent / link).exists(), link
    for dotted in re.findall(r"\bbiv\.([A-Za-z_.]+\w)\(", text):
        value = biv
        for part in dotted.split("."):
            value = getattr(value, part)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_anchors_lead_to_headings(name):
    path = DOCUMENTS[name]
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", path.read_text("utf-8")):
        target = path.parent / link if link else path
        headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), flags=re.M)
        assert anchor in {slug(heading) for heading in headings}, f"{link}#{anchor}"


def slug(heading):
    plain = re.sub(r"[`*]|\]\(.*?\)|\[", "", heading).lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain))


def test_every_page_is_in_the_tree_and_has_a_title():
    named = set()
    for path in DOCS.rglob("*.md"):
        for block in doc_pages.blocks(path):
            if block.language == "{toctree}":
                lines = [line for line in block.text.splitlines() if line and line[0] != ":"]
                entries = [line.rpartition("<")[2].rstrip(">") for line in lines]
                named |= {(path.parent / f"{entry}.md").resolve() for entry in entries}
    assert named == {path.resolve() for path in DOCS.rglob("*.md")} - {DOCS / "index.md"}


def test_the_reference_has_every_public_name():
    reference = "".join(path.read_text("utf-8") for path in (DOCS / "api").glob("*.md"))
    modules = {name for name in biv.__all__ if isinstance(getattr(biv, name), ModuleType)}
    names = (set(biv.__all__) - modules) | {"BIVRegressor", "Fixed", "Relative", "MinimumBatchSize"}
    for module in ("datasets", "models", "training"):
        names |= set(getattr(biv, module).__all__)
    for name in names:
        assert re.search(rf":: (biv\.)?{name}\n", reference), name
    for module in modules:
        assert f".. automodule:: biv.{module}\n" in reference


# The site.


class Page(HTMLParser):
    """URLs that a browser fetches for a page, its links, and its anchors."""

    def __init__(self, path):
        super().__init__()
        self.fetched, self.links, self.anchors = [], [], {""}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.fetched.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon"):
            self.fetched.append(given["href"])
        if tag == "a" and not re.match(r"\w+:", given.get("href") or "x:"):
            self.links.append(given["href"])


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    pytest.importorskip("sphinx")
    process = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
         "-d", tmp_path / "doctrees", DOCS, tmp_path / "site"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    built = {path.resolve(): Page(path) for path in (tmp_path / "site").rglob("*.html")}
    assert len(built) > 40
    for path, page in built.items():
        assert [url for url in page.fetched if re.match(r"(https?:)?//", url)] == [], path
        for link in page.links:
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), f"{path}: {link}"
            if anchor and target in built:
                assert anchor in built[target].anchors, f"{path}: {link}"
    losses = (tmp_path / "site" / "api" / "losses.html").read_text("utf-8")
    assert losses.count("<math") >= 4  # formulas are MathML
    assert "MathJax" not in losses
    assert "munderover><mi>y" not in re.sub(
        r"\s", "", losses
    )  # an index is beside its letter, not below
    estimator = (tmp_path / "site" / "api" / "estimator.html").read_text("utf-8")
    for name in ("epsilon_", "tau2_", "n_epochs_", "variance_factor_"):
        assert f'id="biv.BIVRegressor.{name}"' in estimator
    assert "max_epochs" in estimator[: estimator.index("Neural regression")]  # the signature


# Figures on pages.


def pictures():
    sys.path.insert(0, str(DOCS))
    try:
        import pictures as module
    finally:
        sys.path.remove(str(DOCS))
    return module


def test_pictures_show_the_stored_results():
    module = pictures()
    store = Store(ROOT / "paper" / "results" / "runs.sqlite")
    assert {f"{name}.svg" for name in module.PICTURES} == {
        p.name for p in module.IMAGES.glob("*.svg")
    }
    for name, draw in module.PICTURES.items():
        text = (module.IMAGES / f"{name}.svg").read_text("utf-8")
        (written,) = re.findall(r"<dc:description>(.*?)</dc:description>", text)
        shown = numbers(json.loads(written.replace("&quot;", '"')))
        assert shown == pytest.approx(numbers(draw(store).numbers), abs=1e-4)


def numbers(nested):
    """Return all numbers of nested lists and dictionaries, by their paths."""
    if isinstance(nested, (int, float)):
        return {"": nested}
    pairs = nested.items() if isinstance(nested, dict) else enumerate(nested)
    return {f"{key}/{path}": n for key, part in pairs for path, n in numbers(part).items()}


def _lowest(line):
    """Return the lowest error as the README shows it."""
    diverged = f", {line.diverged}/5 diverged" if line.diverged else ""
    return f"{line.lowest:.3f}{diverged}"


def test_the_table_of_the_readme_shows_the_stored_results():
    module = pictures()
    store = Store(ROOT / "paper" / "results" / "runs.sqlite")
    table = [lines for _, lines in module.runs(store, "table1")]
    readme = (ROOT / "README.md").read_text("utf-8")
    for label in ("L2", "IV", "BIV", "GT"):
        (row,) = re.findall(rf"^\| \**{label}\b[^|]*\|(.*)\|$", readme, flags=re.M)
        shown = [cell.strip(" *") for cell in row.split("|")]
        assert shown == [_lowest(lines[label]) for lines in table]
    (row,) = re.findall(r"^\| best of four cutoffs *\|(.*)\|$", readme, flags=re.M)
    best = [
        min(line.lowest for label, line in lines.items() if label.startswith("C="))
        for lines in table
    ]
    assert [cell.strip() for cell in row.split("|")] == [f"{lowest:.3f}" for lowest in best]


def test_figures_in_the_text_of_the_readme():
    readme = (ROOT / "README.md").read_text("utf-8")
    quality = (ROOT / "benchmarks" / "results" / "quality.md").read_text("utf-8")

    def row(label):
        (cells,) = re.findall(rf"^\| \**{re.escape(label)}\** \|(.*)\|$", quality, flags=re.M)[:1]
        return [float(re.search(r"[\d.]+", cell)[0]) for cell in cells.split("|")]

    boosted = row("LightGBM, weights 1/(σ²+ε), size chosen on noisy labels")
    ours = row("BIVRegressor()")
    above = [100 * (b / o - 1) for b, o in zip(boosted, ours, strict=True)]
    assert f"{min(above):.0f} to {max(above):.0f}% higher error on the Bike Sharing data" in readme
    amyloid = quality[quality.index("## Amyloid") :]
    ours, trees = (
        float(re.search(rf"^\| \**{re.escape(name)}\** \| ([\d.]+)", amyloid, flags=re.M)[1])
        for name in ("BIVRegressor()", "LightGBM, weights 1/(σ²+ε)")
    )
    above = f"and {100 * (trees / ours - 1):.0f}% higher on the well-measured part of real protein"
    assert above in " ".join(readme.split())

    summary = (ROOT / "paper" / "results" / "claims.md").read_text("utf-8")
    verdicts = re.findall(r"^\| \d+ +\| [^|]+\| (holds|FAILS|undecided)", summary, flags=re.M)[:20]
    counts = [verdicts.count(word) for word in ("holds", "FAILS", "undecided")]
    sentence = "{} of the claims hold, {} fail and {} remain undecided.".format(*counts)
    assert sentence in " ".join(readme.split())
    more = (ROOT / "paper" / "results" / "claims-20-seeds.txt").read_text("utf-8")
    undecided = {k for k, verdict in enumerate(verdicts, start=1) if verdict == "undecided"}
    all_later = re.findall(r"^ *(\d+)  .+\n +(holds|FAILS|undecided)", more, flags=re.M)
    later = [verdict for number, verdict in all_later if int(number) in undecided]
    assert len(later) == len(undecided)
    counts = [later.count(word) for word in ("holds", "FAILS", "undecided")]
    sentence = "{} of these {} hold, {} fails and {} stay undecided.".format(
        counts[0], len(later), *counts[1:]
    )
    assert sentence in " ".join(readme.split())


def test_the_description_of_the_picture_in_the_readme():
    drawn = numbers(pictures().PICTURES["gain"](Store(ROOT / "paper/results/runs.sqlite")).numbers)
    readme = (ROOT / "README.md").read_text("utf-8")
    (described,) = re.findall(r"!\[(Two charts.*?)\]", readme, flags=re.S)
    shown = re.findall(r"0\.\d+", described)
    assert len(shown) == 4
    for number in shown:
        digits = len(number) - 2
        assert any(round(value, digits) == float(number) for value in drawn.values()), number


def test_the_figures_of_alternatives_are_the_measured_ones():
    """Every table row with figures on docs/alternatives.md is a row of the benchmark's results."""
    measured = (ROOT / "benchmarks" / "results" / "alternatives.md").read_text("utf-8")
    page = (DOCS / "alternatives.md").read_text("utf-8")
    rows = [
        line
        for line in page.splitlines()
        if line.startswith("|") and re.search(r"\d\.\d|\d%", line)
    ]
    assert len(rows) > 5
    for row in rows:
        assert row in measured.splitlines()


def test_the_citation_is_complete():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == biv.__version__
    assert {"title", "message", "authors", "license"} <= set(cited)
    paper = cited["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Mai", "Khamies", "Paull"]
    assert "2107.04497" in paper["url"]
