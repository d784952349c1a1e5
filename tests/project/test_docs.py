"""The documentation: every block runs, every page is found, the site builds without a warning."""

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
# Whole scripts for torchrun: test_distributed_docs.py runs them there.
ELSEWHERE = {("docs/distributed.md", "python")}


# What a document outside docs has to the letter from a page is run there.
OF_PAGES = {
    block.text
    for name, path in DOCUMENTS.items()
    if name.startswith("docs/")
    for block in doc_pages.blocks(path)
}


def to_run(name):
    found = [
        block for block in doc_pages.blocks(DOCUMENTS[name]) if block.language in doc_pages.RUN
    ]
    if not name.startswith("docs/"):
        found = [block for block in found if block.text not in OF_PAGES]
    return [block for block in found if (name, block.language) not in ELSEWHERE]


RUNNABLE = [name for name in DOCUMENTS if to_run(name)]


# Blocks.


@pytest.mark.parametrize("name", DOCUMENTS)
def test_blocks_say_what_they_are(name):
    text = DOCUMENTS[name].read_text(encoding="utf-8")
    found = doc_pages.blocks(DOCUMENTS[name])
    assert len(re.findall(r"^```", text, flags=re.M)) == 2 * len(found), "a block is not closed"
    assert not re.search(r"^([ \t]+```|[ \t]*~~~)", text, flags=re.M), (
        "a block that would not be run"
    )
    bare = name == "ARCHITECTURE.md"  # a drawing
    allowed = {*doc_pages.RUN, *doc_pages.SHOWN} | ({""} if bare else set())
    assert {block.language for block in found} <= allowed


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNABLE)
def test_every_block_runs(name, tmp_path, monkeypatch, capsys):
    folder = doc_pages.clone(tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BIV_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setattr(sweep, "workers_for", lambda *_: InProcessWorkers())
    doc_blocks.run_blocks(
        to_run(name), name, folder, doc_blocks.run_in_this_process, apart=name == "README.md"
    )  # people copy single blocks of the README
    capsys.readouterr()


@pytest.mark.slow
def test_a_wrong_block_is_seen(tmp_path):
    """That the three ways to run a block can fail."""
    with pytest.raises(ZeroDivisionError):
        doc_blocks.run_python(doc_pages.Block("python", "1 / 0", 1), "page", {})
    with pytest.raises(AssertionError, match="Expected"):
        doc_blocks.run_doctest(doc_pages.Block("pycon", ">>> 1 + 1\n3\n", 1), "page", {})
    for wrong in ("biv docs nowhere", "make nothing", "pip install '.[nothing]'", "false"):
        block = doc_pages.Block("sh", wrong, 7)
        with pytest.raises(AssertionError, match="line 7"):
            doc_blocks.run_commands(block, tmp_path, doc_blocks.run_in_this_process)


def test_the_first_loop_learns():
    """What the README's first block says."""
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
        found = biv
        for part in dotted.split("."):
            found = getattr(found, part)


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
    """What a browser would fetch of its own accord, where links lead, and what they can lead to."""

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
def test_the_site_builds_without_a_warning_and_asks_for_nothing(tmp_path):
    pytest.importorskip("sphinx")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
         "-d", tmp_path / "doctrees", DOCS, tmp_path / "site"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
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
    assert losses.count("<math") >= 4  # formulas are there, as browsers draw them
    assert "MathJax" not in losses
    assert "munderover><mi>y" not in re.sub(r"\s", "", losses)  # no index stands below its letter
    estimator = (tmp_path / "site" / "api" / "estimator.html").read_text("utf-8")
    for name in ("epsilon_", "tau2_", "n_epochs_", "variance_factor_"):
        assert f'id="biv.BIVRegressor.{name}"' in estimator
    assert "max_epochs" in estimator[: estimator.index("Neural regression")]  # the signature


# What pages say.


def pictures():
    sys.path.insert(0, str(DOCS))
    try:
        import pictures as module
    finally:
        sys.path.remove(str(DOCS))
    return module


def test_pictures_show_what_is_stored():
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
    """All of them, each with the way to it."""
    if isinstance(nested, (int, float)):
        return {"": nested}
    pairs = nested.items() if isinstance(nested, dict) else enumerate(nested)
    return {f"{key}/{way}": n for key, part in pairs for way, n in numbers(part).items()}


def _lowest(line):
    """As the README has it."""
    lost = f", {line.diverged}/5 diverged" if line.diverged else ""
    return f"{line.lowest:.3f}{lost}"


def test_the_readme_s_table_is_that_of_the_store():
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
        min(own.lowest for label, own in lines.items() if label.startswith("C=")) for lines in table
    ]
    assert [cell.strip() for cell in row.split("|")] == [f"{lowest:.3f}" for lowest in best]


def test_figures_in_the_readme_s_prose():
    readme = (ROOT / "README.md").read_text("utf-8")
    quality = (ROOT / "benchmarks" / "results" / "quality.md").read_text("utf-8")

    def row(label):
        (found,) = re.findall(rf"^\| \**{re.escape(label)}\** \|(.*)\|$", quality, flags=re.M)[:1]
        return [float(re.search(r"[\d.]+", cell)[0]) for cell in found.split("|")]

    boosted = row("LightGBM, weights 1/(σ²+ε), size chosen on noisy labels")
    above = [100 * (b / own - 1) for b, own in zip(boosted, row("BIVRegressor()"), strict=True)]
    assert f"{min(above):.0f} to {max(above):.0f}% higher error on bicycle counts" in readme
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
    assert "{} hold, {} fail, and of the {} that".format(*counts) in " ".join(readme.split())
    more = (ROOT / "paper" / "results" / "claims-20-seeds.txt").read_text("utf-8")
    left = {
        k for k, verdict in enumerate(verdicts, start=1) if verdict == "undecided"
    }  # at five seeds
    found = re.findall(r"^ *(\d+)  .+\n +(holds|FAILS|undecided)", more, flags=re.M)
    later = [verdict for number, verdict in found if int(number) in left]
    assert len(later) == len(left)
    told = f"seeds show {later.count('holds')} to hold and {later.count('FAILS')} to fail"
    assert told in " ".join(readme.split())


def test_the_readme_s_picture_is_described_as_it_is():
    found = numbers(pictures().PICTURES["gain"](Store(ROOT / "paper/results/runs.sqlite")).numbers)
    readme = (ROOT / "README.md").read_text("utf-8")
    (described,) = re.findall(r"!\[(Two charts.*?)\]", readme, flags=re.S)
    said = re.findall(r"0\.\d+", described)
    assert len(said) == 4
    for number in said:
        digits = len(number) - 2
        assert any(round(value, digits) == float(number) for value in found.values()), number


def test_what_is_compared_is_what_was_measured():
    """Rows of tables with figures on docs/alternatives.md are rows of the benchmark."""
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
