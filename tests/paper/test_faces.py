"""The paper's experiments on faces; on generated images, and on real ones where they are on hand."""

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
    """Discs by the names of faces: the larger, the older."""
    rng = np.random.default_rng(0)
    ages = rng.integers(1, 90, 330)
    files = {}
    for n, age in enumerate(ages):
        image = disc(age / 8, shift=n)
        image[0, 0] = (*divmod(n, 250), 0)  # all are different
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


# Plans.


def test_every_artefact_can_be_had_for_faces():
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


def test_images_need_pixels_and_tables_have_none():
    for change in ({"pixels": None}, {"dataset": "bike"}):
        with pytest.raises(ValueError, match="pixels are for images, and images need them"):
            replace(RUN, **change)
    assert Run.from_canonical(RUN.canonical()) == RUN
    assert '"pixels":16' in RUN.canonical()
    assert "pixels" not in artefacts("bike", PRESETS["paper"])["table1"].runs(1)[0].canonical()


def test_thumbnails_are_the_paper_s_but_for_the_resolution():
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
    with pytest.raises(ValueError, match="the thumbnail preset is for utkface; got bike"):
        artefacts("bike", PRESETS["thumbnail"])


@pytest.mark.parametrize("preset", PRESETS)
def test_every_run_takes_steps_and_is_tested(preset):
    for artefact in artefacts("utkface", PRESETS[preset]).values():
        for run in artefact.runs(1):
            assert run.epochs * (run.train_rows // run.batch_size) >= run.test_every >= 1
    assert timing.rows_forward(artefact.runs(1)) > 0


def test_a_part_of_an_artefact():
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
    apart = artefacts("utkface", PRESETS["laptop"])["fig05"]
    with pytest.raises(ValueError, match="fig05 has none of these lines in these panels"):
        apart.only(["ε=0, normalised"], ["ε=0.05, not normalised"])


def test_claims_for_faces():
    known = claims("utkface", PRESETS["laptop"])
    assert sorted({*range(1, 21)} - set(known)) == [20]
    assert sorted({*range(1, 21)} - set(claims("utkface", PRESETS["paper"]))) == [16, 20]


def test_images_are_trained_one_by_one():
    runs = artefacts("utkface", PRESETS["laptop"])["table1"].runs(2)
    assert [len(stack) for stack in runner.pack(runs, 2)] == [1] * len(runs)
    assert [stack[0].seed for stack in runner.pack(runs, 2)] == [0] * 22 + [1] * 22


# Training.


@pytest.mark.usefixtures("generated")
def test_members_learn_from_noisy_ages_and_are_tested_on_clean_ones():
    make, data = protocol.MemberFactory(), load(16)
    noisy, clean = make(RUN), make(replace(RUN, noise=CLEAN, loss=L2))
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
    other = make(replace(RUN, loss=L2))
    assert torch.equal(other.train.y.nan_to_num(), noisy.train.y.nan_to_num())  # the same noise


@pytest.mark.usefixtures("generated")
def test_the_noise_has_the_mean_of_the_paper():
    scale = load(16).y.std(ddof=1)
    run = replace(RUN, noise=Noise("uniform", 0.0), train_rows=300)
    member = protocol.MemberFactory()(run)
    variance = member.train.variance[member.rows]
    torch.testing.assert_close(variance, torch.full_like(variance, 2_000 / scale**2))
    with pytest.raises(ValueError, match="depends on the hour is for data that have one"):
        protocol.MemberFactory()(replace(RUN, noise=Noise("hours", 0.1)))


@pytest.mark.slow
@pytest.mark.usefixtures("generated")
def test_a_run_is_what_a_few_lines_of_pytorch_make_of_it():
    """The paper's protocol on faces, written out: loss, order, batches, tests, optimiser.

    At a tenth of its learning rate: at all of it, Adam's first steps make a percent of a rounding.
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
        for batch in (rows[:10], rows[10:20]):  # four are dropped
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
    assert "2 runs trained" in shown
    assert (
        shown.count(
            "utkface: 330 images; 1 files are left out: no age at the beginning of its name (1 file: "
        )
        == 1
    )
    assert "256 training images of 32×32, noise of mean variance μ = 2,000 years²" in shown
    names = {path.name for path in generated.iterdir()}
    assert {f"table1-utkface-smoke-part.{kind}" for kind in ("md", "csv", "tex", "svg")} <= names
    assert main(["claims", "--stored", *out]) == 0
    shown = capsys.readouterr().out
    assert "Not for these data: claim 20" in shown
    assert re.search(r"IV diverges at α=0.25 +every run", shown)
    assert len(Store(generated / "runs.sqlite").runs()) == 2


def test_a_data_set_that_is_too_small_is_an_error_before_training(generated, capsys):
    out = ["--dataset", "utkface", "--preset", "laptop", "--out", str(generated / "out")]
    assert main(["reproduce", "table1", "--lines", "GT", *out]) == 2
    said = "utkface has 330 rows here, and these runs need 5,000: choose a smaller preset"
    assert said in capsys.readouterr().err


# Reports.


def test_the_table_is_beside_the_papers_figures_for_faces():
    artefact = artefacts("utkface", PRESETS["laptop"])["table1"].only([], ["L2", "BIV"])
    columns = tables.cells(artefact, {}, 2)
    assert [cell.paper for cell in columns[2]] == [(0.55, 0.05), (0.33, 0.02)]
    assert "not run" in tables.markdown(columns)
    for title in tables.FACES:
        assert set(tables.FACES[title]) == set(tables.BIKE[title])


def test_captions_speak_of_images():
    caption = figures.caption(artefacts("utkface", PRESETS["laptop"])["fig01"], {}, 2)
    assert "4,000 training images of 64×64" in caption
    assert "smoothed over 3 tests, one every 1,920 samples" in caption
    assert "The paper has 16,000 images of 200×200, batches of 256 and 20 epochs." in caption
    assert "shows this on faces" not in caption


def test_a_short_run_is_smoothed_over_an_eighth_of_its_tests():
    _, results = line_of(np.arange(24.0))
    (result,) = results.values()
    np.testing.assert_allclose(result.smoothed, np.arange(1.0, 23.0))
    assert result.diverged  # it ends above 1


# The faces themselves, where they are on hand. No face is shown or kept.


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:left out")  # `skipped` has them, and is tested
def test_the_faces_on_hand(data_dir, tmp_path, monkeypatch):
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
