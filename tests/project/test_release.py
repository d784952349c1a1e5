"""Checks of commits and releases, and the content of the archives."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import biv

ROOT = Path(__file__).parents[2]


def recipe(target):
    """Return the commands of a target of the Makefile, with its variables expanded."""
    text = (ROOT / "Makefile").read_text()
    (lines,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, flags=re.M)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in lines.splitlines()]


def test_pre_commit_runs_what_make_lint_runs():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == recipe("lint")
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        assert hook["pass_filenames"] is False


def test_continuous_integration_runs_make_check():
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make check"
    assert re.search(r"^check: lint test\b", (ROOT / "Makefile").read_text(), flags=re.M)


def test_the_changelog_has_a_section_for_the_next_release():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.M)
    assert re.fullmatch(
        rf"\[{re.escape(biv.__version__)}\] - (unreleased|\d{{4}}-\d\d-\d\d)", headings[0]
    )


def test_the_version_is_written_in_one_place():
    paths = [
        path
        for path in (*ROOT.glob("*.toml"), *ROOT.glob("src/biv/**/*.py"), *ROOT.glob("docs/*.py"))
        if re.search(rf"\b{re.escape(biv.__version__)}\b(?!\d)", path.read_text("utf-8"))
    ]
    assert paths == [ROOT / "src" / "biv" / "__init__.py"]


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Build a wheel and an sdist, and return their paths."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def released(folder):
    """Return the files of a folder of the clone that a release must contain."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not {"__pycache__", ".DS_Store"} & set(path.parts)
    }


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_pages(archives):
    wheel, _ = archives
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    package = {name.removeprefix("src/") for name in released("src/biv")}
    assert {"biv/py.typed", "biv/__init__.pyi", "biv/losses/__init__.pyi"} <= package
    code = {name for name in names if name.startswith("biv/") and not name.startswith("biv/docs/")}
    assert code == package
    pages = {name for name in names if name.startswith("biv/docs/")}
    assert {"biv/docs/index.md", "biv/docs/paper/index.md"} <= pages
    assert all(name.endswith(".md") for name in pages)
    others = {name.split("/")[0] for name in names - code - pages}
    assert others == {f"biv-{biv.__version__}.dist-info"}


@pytest.mark.slow
def test_the_sdist_can_be_tested_and_built_again(archives):
    _, sdist = archives
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    for folder in ("src", "tests", "docs", "examples", "benchmarks", "tools"):
        assert released(folder) <= names
    assert {"Makefile", "constraints.txt", "pyproject.toml", "CHANGELOG.md", "LICENSE"} <= names
    assert {".ci/run", ".pre-commit-config.yaml"} <= names
    assert not {name for name in names if name.startswith((".venv", "build", "dist"))}
