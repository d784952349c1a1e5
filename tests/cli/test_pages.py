"""Errors and `--help` name pages of the documentation, and `biv docs` shows them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import biv
from biv import training
from biv._utils import pages
from biv.cli import main
from biv.models import MLP
from biv.paper.workers import clusters

ROOT = Path(__file__).parents[2]

# Errors and help.


def test_arguments_and_commands_name_pages_that_exist(capsys):
    known = pages.titles()
    assert set(pages.PAGE_OF.values()) <= set(known)
    commands = re.findall(r"^    (\w+)(?:  |$)", output(capsys, ["--help"]), flags=re.M)
    assert len(commands) == 8
    for command in commands:
        text = output(capsys, [command, "--help"])
        (page,) = re.findall(r"^more: biv docs (\S+)$", text, re.M)
        assert page in known
        assert "\nterms: biv docs glossary\n" in text
    for page in re.findall(r"biv docs ([a-z][\w/-]*)", output(capsys, ["--help"])):
        assert page in known
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = re.findall(r"biv docs ([a-z][\w/-]*)", sources) + re.findall(
        r'named\("([\w-]+)"', sources
    )
    assert set(named) <= set(known)


def output(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    return capsys.readouterr().out


ONES = torch.ones(3)
COLUMN = ONES[:, None]
ROWS = training.Triplets(COLUMN, ONES, ONES)
MEMBERS, ONCE = [training.Member(ROWS)], training.Schedule(epochs=1, batch_size=2)


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("error-bars", lambda: biv.biv_loss(ONES, ONES, -ONES)),
        ("error-bars", lambda: biv.inverse_variance_weights([1.0, -1.0])),
        ("error-bars", lambda: biv.labels.plus_minus([1.0], [-1.0])),
        ("error-bars", lambda: biv.BIVRegressor().fit(COLUMN, ONES, y_var=-ONES)),
        ("error-bars", lambda: biv.BIVRegressor(loss="iv").fit(COLUMN, ONES)),
        ("epsilon", lambda: biv.iv_loss(ONES, ONES, 0 * ONES)),
        ("epsilon", lambda: biv.BIVLoss(epsilon="five")),
        ("epsilon", lambda: biv.BIVLoss(epsilon=-1.0)),
        ("epsilon", lambda: biv.BIVRegressor(epsilon="five").fit(COLUMN, ONES)),
        ("estimator", lambda: biv.BIVRegressor(loss="mse").fit(COLUMN, ONES)),
        ("loss", lambda: biv.biv_loss(ONES, ONES, None)),
        ("loss", lambda: biv.biv_loss(ONES, ONES, [1.0, 1.0, 1.0])),
        ("loss", lambda: biv.biv_loss(COLUMN, COLUMN, ONES)),
        ("distributed", lambda: biv.BIVLoss(process_group="all")(ONES, ONES, ONES)),
        ("loss", lambda: biv.biv_loss(ONES, ONES, ONES, mask=ONES)),
        ("loss", lambda: biv.biv_loss(ONES, ONES, ONES, sample_weight=-ONES)),
        ("loss", lambda: biv.biv_loss(ONES, ONES, ONES, base="mze")),
        ("loss", lambda: biv.CutoffLoss(threshold=-1)),
        ("epsilon", lambda: biv.effective_batch_size(-ONES)),
        ("epsilon", lambda: biv.epsilon.MinimumBatchSize()),
        ("epsilon", lambda: biv.epsilon.MinimumBatchSize(0.5)),
        ("estimator", lambda: biv.BIVRegressor.load("nothing")),
        ("estimator", lambda: biv.BIVRegressor(members=0).fit(COLUMN, ONES)),
        ("networks", lambda: MLP(features=0)),
        ("distributed", lambda: clusters.require_listening("dask", "127.0.0.1:1")),
        ("error-bars", lambda: biv.labels.interval([1.0, 2.0], [3.0])),
        ("error-bars", lambda: biv.labels.repeats([1, 2], [3.0, 4.0])),
        ("checking", lambda: biv.metrics.variance_factor(ONES, ONES, ONES)),
        ("checking", lambda: biv.metrics.noise_corrected_mse(COLUMN, ONES, ONES)),
        ("error-bars", lambda: biv.metrics.noise_corrected_mse(ONES, ONES, -ONES)),
        ("command", lambda: biv.datasets.read_table("nothing.csv", target="y")),
        ("command", lambda: biv.datasets.read_table(__file__, target="y")),
        ("images", lambda: biv.images.read_images(__file__, size=-1)),
        ("images", lambda: biv.datasets.load_utkface("nothing.zip")),
        ("networks", lambda: training.Triplets(ONES, ONES)),
        ("error-bars", lambda: training.Member(training.Triplets(COLUMN, ONES, -ONES))),
        ("networks", lambda: training.Schedule(epochs=-1)),
        ("networks", lambda: training.Member(ROWS, loss="l2")),
        ("networks", lambda: training.train_stack(torch.nn.Linear(1, 1), MEMBERS, ONCE)),
        ("networks", lambda: training.train_stack(MLP(features=2), MEMBERS, ONCE)),
        ("networks", lambda: training.train_stack(MLP(features=1), [], ONCE)),
        ("networks", lambda: training.train_stack(lambda _: torch.nn.ReLU(), MEMBERS, ONCE)),
        ("networks", lambda: training.cross_fit(MLP(features=1), ROWS, ONCE, members=3, folds=2)),
    ],
)
def test_errors_of_arguments_name_a_page(page, wrong):
    wrongs = (ValueError, TypeError, FileNotFoundError, ConnectionError)
    with pytest.raises(wrongs, match=rf"\(see: biv docs {page}\)"):
        wrong()


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["train", "nothing.csv", "--target", "y"], "command"),
        (["compare", "nothing.csv", "--target", "y", "--target-std", "s"], "command"),
        (["compare", ".", "--target", "y", "--target-std", "s", "--folds", "1"], "checking"),
        (["train", "t.csv", "--target", "y", "--epsilon", "five"], "epsilon"),
        (["reproduce", "fig99"], "paper"),
        (["docs", "epsilom"], "index"),
    ],
)
def test_errors_of_the_command_name_a_page(arguments, page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"(see: biv docs {page})")


def test_bad_usage_names_a_page(capsys):
    with pytest.raises(SystemExit):
        main(["inspect"])
    assert "(see: biv docs command)" in capsys.readouterr().err


def test_errors_of_users_and_of_the_system_are_unchanged():
    """Errors of users' functions, and errors with a number of the operating system."""

    def network(_):
        raise ValueError("of my own")

    with pytest.raises(ValueError, match=r"^of my own$"):
        training.train_stack(network, MEMBERS, ONCE)
    with pytest.raises(FileNotFoundError) as raised, pages.errors_point_to("images"):
        open("nothing.txt")  # noqa: PTH123, SIM115
    assert raised.value.errno == 2
    assert raised.value.filename == "nothing.txt"


# `biv docs`.


def test_docs_lists_the_pages_and_shows_each(capsys):
    assert main(["docs"]) == 0
    listed = capsys.readouterr().out
    for name, title in pages.titles().items():
        assert main(["docs", name]) == 0
        assert capsys.readouterr().out.startswith(f"# {title}\n")
        assert name in listed
    assert main(["docs", "index"]) == 0
    assert "toctree" not in capsys.readouterr().out
    assert "epsilon" in listed
    assert "paper/fig03" in listed


@pytest.mark.slow
def test_the_package_contains_its_pages(tmp_path):
    wheels = pytest.importorskip("hatchling.builders.wheel")
    (built,) = wheels.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    subprocess.run([sys.executable, "-m", "zipfile", "-e", built, tmp_path / "in"], check=True)
    code = "from biv._utils import pages; print(pages.folder()); print(*pages.titles())"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "in")},
    ).stdout  # fmt: skip
    folder, names = printed.splitlines()
    assert Path(folder) == tmp_path / "in" / "biv" / "docs"
    assert names.split() == list(pages.titles())
    assert (tmp_path / "in" / "biv" / "py.typed").exists()


def test_a_page_is_named_once(capsys, tmp_path, monkeypatch):
    """The command adds no page to an error that names one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("x,y,s\n1,2,0.1\n2,3,-0.1\n3,4,0.1\n")
    assert main(["train", "t.csv", "--target", "y", "--target-std", "s"]) == 2
    assert capsys.readouterr().err.count("biv docs") == 1


def test_pages_are_listed_in_the_order_of_the_first_page(capsys):
    main(["docs"])
    names = re.findall(r"^  biv docs (\S+)", capsys.readouterr().out, flags=re.M)
    assert names[:4] == ["index", "loss", "estimator", "command"]
    assert not any("api" in name for name in pages.titles())
    assert "contributing" not in pages.titles()  # this page exists on the website only


def test_errors_of_the_system_name_no_page(capsys, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("biv.cli.docs.listing", lambda: full(None))
    assert main(["docs"]) == 1
    assert "see:" not in capsys.readouterr().err


def test_a_misspelled_page_gets_a_suggestion(capsys):
    main(["docs", "claims"])
    assert "paper/claims?" in capsys.readouterr().err


@pytest.mark.slow
def test_an_encoding_without_greek_letters():
    for arguments in (["--help"], ["docs", "epsilon"], ["train", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "biv", *arguments], capture_output=True,
            env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
