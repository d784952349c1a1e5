"""Test the experiments on faces with generated images, and with UTKFace where it is available."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import biv
from biv.cli import main
from biv.datasets import load_utkface
from biv.paper import protocol, runner, stacks, timing
from biv.paper.artefacts import BATCH_SIZES, artefacts
from biv.paper.claims import claims
from biv.paper.grid import BIV, CLEAN, IV, L2, cutoff, gamma
from biv.paper.presets import PRESETS
from biv.paper.report import figures, tables
from biv.paper.spec import Noise, Run
from biv.paper.store import Store
from helpers.paper_runs import assert_same_result, line_of
from helpers.pictures import disc, encoded, write_folder

RUN = Run(
    "utkface", gamma(1.0), BIV, seed=1, train_rows=24, test_rows=9, epochs=2, batch_size=10,
    test_every=2, pixels=16,
)  # fmt: skip


@pytest.fixture
def generated(tmp_path, monkeypatch):
    """Write images of discs with file names of faces; a larger disc has a higher age."""
    rng = np.random.default_rng(0)
    ages = rng.integers(1, 90, 330)
    files = {}
    for n, age in enumerate(ages):
        image = disc(age / 8, shift=n)
        image[0, 0] = (*divmod(n, 250), 0)  # makes every file distinct
        files[f"{age}_0_0_{n}.png"] = encoded(image)
    files["notes.txt"] = b"hello"
    write_folder(tmp_path / "data" / "utkface" / "UTKFace", files)
    monkeypatch.setenv("BIV_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("BIV_CACHE_DIR", str(tmp_path / "cache"))
    protocol.source.cache_clear()
    yield tmp_path
    protocol.source.cache_clear()


def load(size):
    with pytest.warns(UserWarning, match="1 of 331 files"):
        return load_utkface(size=size)


# Grids and presets.


def test_every_artefact_exists_for_faces():
    whole = artefacts("utkface", PRESETS["paper"])
    assert len(whole) == 16
    every = {run for artefact in whole.values() for run in artefact.runs(5)}
    assert {(r.train_rows, r.test_rows, r.epochs, r.pixels) for r in every} == {
        (16_000, 4_000, 20, 200)
    }
    assert {run.batch_size for run in every} == set(BATCH_SIZES)
    assert {run.batch_size * run.test_every for run in every} == {256}


def test_the_laptop_preset():
    (run,) = {replace(r, seed=0) for r in artefacts("utkface", PRESETS["laptop"])["table1"].runs(1)
              if (r.noise, r.loss) == (CLEAN, L2)}  # fmt: skip
    assert (run.train_rows, run.test_rows, run.pixels) == (4_000, 1_000, 64)
    assert (run.epochs, run.batch_size, run.test_every) == (12, 128, 15)
    batches = artefacts("utkface", PRESETS["laptop"])["fig14"].runs(1)
    assert {len(range(0, r.epochs * (4_000 // r.batch_size), r.test_every)) for r in batches} <= {
        25, 26,
    }  # fmt: skip


def test_images_require_pixels_and_tables_forbid_them():
    for change in ({"pixels": None}, {"dataset": "bike"}):
        with pytest.raises(
            ValueError,
            match="pixels must be given for the data set utkface and must be None for the others; got ",
        ):
            replace(RUN, **change)
    assert Run.from_canonical(RUN.canonical()) == RUN
    assert '"pixels":16' in RUN.canonical()
    assert "pixels" not in artefacts("bike", PRESETS["paper"])["table1"].runs(1)[0].canonical()


def test_the_thumbnail_preset_differs_from_the_paper_in_resolution_and_evaluations():
    (run,) = {
        replace(r, noise=CLEAN, loss=L2)
        for r in artefacts("utkface", PRESETS["thumbnail"])["table1"].runs(1)
    }
    (paper,) = {
        replace(r, noise=CLEAN, loss=L2)
        for r in artefacts("utkface", PRESETS["paper"])["table1"].runs(1)
    }
    assert replace(run, pixels=paper.pixels, test_every=paper.test_every) == paper
    assert (run.pixels, run.test_every, run.train_rows) == (32, 12, 16_000)
    with pytest.raises(
        ValueError, match="the thumbnail preset requires the data set utkface; got bike"
    ):
        artefacts("bike", PRESETS["thumbnail"])


@pytest.mark.parametrize("preset", PRESETS)
def test_every_run_has_steps_and_evaluations(preset):
    for artefact in artefacts("utkface", PRESETS[preset]).values():
        for run in artefact.runs(1):
            assert run.epochs * (run.train_rows // run.batch_size) >= run.test_every >= 1
    assert timing.rows_forward(artefact.runs(1)) > 0


def test_an_artefact_can_be_restricted_to_panels_and_lines():
    whole = artefacts("utkface", PRESETS["laptop"])["table1"]
    part = whole.only(["alpha=1", "α=0.25"], ["GT", "L2", "biv", "IV", "C=mu"])
    assert [panel.title for panel in part.panels] == ["α=1", "α=0.25"]
    assert [line.label for line in part.panels[0].lines] == ["C=μ", "L2", "BIV", "IV", "GT"]
    assert len(part.runs(2)) == 18
    assert set(part.runs(2)) <= set(whole.runs(2))
    assert {run.loss for run in part.runs(1)} == {L2, BIV, IV, cutoff(1.0)}
    assert whole.only([], []) == whole
    for panels, lines, message in (
        (["α=2"], [], "a panel must be one of α=1, α=0.5, α=0.25; got 'α=2'"),
        ([], ["L3"], "a line must be one of C=μ/20, .*; got 'L3'"),
    ):
        with pytest.raises(ValueError, match=message):
            whole.only(panels, lines)
    separate = artefacts("utkface", PRESETS["laptop"])["fig05"]
    with pytest.raises(
        ValueError, match="the selected panels of fig05 have none of the selected lines"
    ):
        separate.only(["ε=0, normalised"], ["ε=0.05, not normalised"])


def test_claims_for_faces():
    available = claims("utkface", PRESETS["laptop"])
    assert sorted({*range(1, 21)} - set(available)) == [20]
    assert sorted({*range(1, 21)} - set(claims("utkface", PRESETS["paper"]))) == [16, 20]


def test_runs_on_images_are_not_stacked():
    runs = artefacts("utkface", PRESETS["laptop"])["table1"].runs(2)
    assert [len(stack) for stack in runner.pack(runs, 2)] == [1] * len(runs)
    assert [stack[0].seed for stack in runner.pack(runs, 2)] == [0] * 22 + [1] * 22


# Training.


@pytest.mark.usefixtures("generated")
def test_members_learn_from_noisy_ages_and_are_tested_on_clean_ones():
    make_member, data = protocol.MemberFactory(), load(16)
    noisy, clean = make_member(RUN), make_member(replace(RUN, noise=CLEAN, loss=L2))
    assert np.shares_memory(noisy.train.x, clean.train.x)
    assert np.shares_memory(noisy.train.x.numpy(), protocol.source("utkface", 16).x)
    assert torch.equal(noisy.rows, clean.rows)
    assert len(noisy) == 24
    scale = data.y.std(ddof=1)
    ages = (data.y - data.y.mean()) / scale
    torch.testing.assert_close(
        clean.train.y[clean.rows, 0], torch.tensor(ages[clean.rows], dtype=torch.float32)
    )
    assert bool(clean.train.y[~torch.isin(torch.arange(330), clean.rows)].isnan().all())
    rows = [np.flatnonzero((data.x == x.numpy()).all(axis=(1, 2, 3)))[0] for x in noisy.test.x]
    assert not set(rows) & set(noisy.rows.tolist())
    np.testing.assert_allclose(noisy.test.y[:, 0], ages[rows], rtol=1e-5)
    assert torch.equal(noisy.test.y, clean.test.y)
    other = make_member(replace(RUN, loss=L2))
    assert torch.equal(other.train.y.nan_to_num(), noisy.train.y.nan_to_num())  # the same noise


@pytest.mark.usefixtures("generated")
def test_the_noise_has_the_mean_of_the_paper():
    scale = load(16).y.std(ddof=1)
    run = replace(RUN, noise=Noise("uniform", 0.0), train_rows=300)
    member = protocol.MemberFactory()(run)
    variance = member.train.variance[member.rows]
    torch.testing.assert_close(variance, torch.full_like(variance, 2_000 / scale**2))
    with pytest.raises(
        ValueError, match="noise that depends on the hour requires the data set bike or bike2011"
    ):
        protocol.MemberFactory()(replace(RUN, noise=Noise("hours", 0.1)))


@pytest.mark.slow
@pytest.mark.usefixtures("generated")
def test_a_run_equals_a_plain_pytorch_loop():
    """Write out the paper's protocol on faces: loss, order, batches, evaluations, optimizer.

    The learning rate is a tenth of the paper's. At the paper's own, the first steps of Adam turn
    rounding errors into differences of a percent.
    """
    slow = replace(RUN, learning_rate=1e-4)
    (result,) = stacks.train([slow])
    member = protocol.MemberFactory()(slow)
    network = protocol.network(slow)(member.generators()[0])
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    order = member.generators()[1]
    train_losses, test_losses = [], []
    for _ in range(2):
        rows = member.rows[torch.randperm(24, generator=order)]
        for batch in (rows[:10], rows[10:20]):  # the last four rows are dropped
            network.train()
            weight = 1 / (member.train.variance[batch] + 0.05)
            error = network(member.train.x[batch]) - member.train.y[batch]
            loss = (weight * error**2).sum() / weight.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            train_losses.append(loss.item())
        network.eval()
        with torch.no_grad():
            test_losses.append(F.mse_loss(network(member.test.x), member.test.y).item())
    np.testing.assert_allclose(
        result.train_loss, np.reshape(train_losses, (2, 2)).mean(axis=1), rtol=1e-4
    )
    np.testing.assert_allclose(result.test_loss, test_losses, rtol=1e-4)
    gpu = torch.cuda.is_available()
    assert result.provenance["device"] == (torch.cuda.get_device_name() if gpu else "cpu")
    (again,) = stacks.train([slow])
    assert_same_result(result, again)


@pytest.mark.slow
def test_reproduce_and_claims_on_faces(generated, capsys):
    out = ["--dataset", "utkface", "--preset", "smoke", "--seeds", "1", "--out", str(generated)]
    part = ["--panels", "alpha=0.25", "--lines", "GT", "IV"]
    assert main(["reproduce", "table1", *part, "--list", *out]) == 0
    assert re.search(
        r"^table1 +GammaResults +2 +0 +[\d.]+ (s|min) ", capsys.readouterr().out, re.MULTILINE
    )
    assert main(["reproduce", "table1", *part, *out]) == 0
    shown = capsys.readouterr().out
    assert "Trained 2 runs; " in shown
    message = (
        "utkface: 330 images; 1 file was left out: no age at the beginning of its name (1 file: "
    )
    assert shown.count(message) == 1
    assert "256 training images of 32×32 and 64 test images of 32×32 with clean labels." in shown
    assert "Noise: mean variance μ = 2,000 years²." in shown
    names = {path.name for path in generated.iterdir()}
    assert {f"table1-utkface-smoke-part.{kind}" for kind in ("md", "csv", "tex", "svg")} <= names
    assert main(["claims", "--stored", *out]) == 0
    shown = capsys.readouterr().out
    assert "These data cannot test claim 20." in shown
    assert re.search(r"IV diverges at α=0.25 +every run", shown)
    assert len(Store(generated / "runs.sqlite").runs()) == 2


def test_a_data_set_that_is_too_small_is_an_error_before_training(generated, capsys):
    out = ["--dataset", "utkface", "--preset", "laptop", "--out", str(generated / "out")]
    assert main(["reproduce", "table1", "--lines", "GT", *out]) == 2
    message = (
        "utkface must have at least 5,000 rows for these runs; got 330. Choose a smaller preset"
    )
    assert message in capsys.readouterr().err


# Reports.


def test_the_table_for_faces_has_the_numbers_of_the_paper():
    artefact = artefacts("utkface", PRESETS["laptop"])["table1"].only([], ["L2", "BIV"])
    columns = tables.cells(artefact, {}, 2)
    assert [cell.paper for cell in columns[2]] == [(0.55, 0.05), (0.33, 0.02)]
    assert "not run" in tables.markdown(columns)
    for title in tables.FACES:
        assert set(tables.FACES[title]) == set(tables.BIKE[title])


def test_a_caption_for_faces_describes_images():
    caption = figures.caption(artefacts("utkface", PRESETS["laptop"])["fig01"], {}, 2)
    assert "4,000 training images of 64×64" in caption
    assert "smoothed over 3 evaluations, with one evaluation every 1,920 samples" in caption
    assert "The paper uses 16,000 images of 200×200, batch size 256 and 20 epochs." in caption
    assert "for faces" not in caption


def test_a_short_run_is_smoothed_over_an_eighth_of_its_evaluations():
    _, results = line_of(np.arange(24.0))
    (result,) = results.values()
    np.testing.assert_allclose(result.smoothed, np.arange(1.0, 23.0))
    assert result.diverged  # it ends above 1


# UTKFace itself, where it is available. No image is shown or stored.


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:left out")  # `skipped` lists them and is tested
def test_utkface_can_be_loaded(data_dir, tmp_path, monkeypatch):
    if not (data_dir / "utkface" / "UTKFace").is_dir():
        pytest.skip("UTKFace is not in BIV_DATA_DIR")
    monkeypatch.setenv("BIV_CACHE_DIR", str(tmp_path))
    data = load_utkface(size=8)
    files = sum(path.is_file() for path in (data_dir / "utkface" / "UTKFace").iterdir())
    assert len(data) + len(data.skipped) == files
    assert data.x.shape == (len(data), 3, 8, 8)
    assert 1 <= data.y.min() < data.y.max() <= 116
    assert all(name.startswith(f"{age:.0f}_") for name, age in zip(data.names, data.y, strict=True))
    odd = [name for name in data.names if not re.fullmatch(r"\d+_[01]_[0-4]_\d{17}\.jpg.*", name)]
    assert len(data) < 5_000 or len(odd) >= 7
    assert isinstance(data, biv.images.ImageDataset)
