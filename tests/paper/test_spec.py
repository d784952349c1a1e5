"""Test runs and their hashes, the members that train them, and the grids of the paper."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from biv.paper.artefacts import artefacts, find
from biv.paper.grid import gamma
from biv.paper.presets import PRESETS
from biv.paper.protocol import MemberFactory, schedule, source
from biv.paper.spec import Loss, Noise, Run
from helpers.paper_runs import RUN, SMOKE


def test_a_run_can_be_read_from_its_canonical_text():
    text = RUN.canonical()
    assert json.loads(text)["noise"]["parameter"] == 0.5
    assert Run.from_canonical(text) == RUN
    assert Run.from_canonical(text).key == RUN.key
    assert (
        replace(RUN, noise=Noise("gamma", 1), learning_rate=1).key
        == replace(RUN, noise=Noise("gamma", 1.0), learning_rate=1.0).key
    )


def test_the_hash_of_a_run_does_not_change():
    """Stores depend on this hash, computed with sha256sum from a canonical text written by hand."""
    assert (
        Run("bike", Noise("gamma", 1.0), Loss("biv", epsilon=0.05), seed=0).key
        == "e2fe741727da033bd45f"
    )


@pytest.mark.parametrize("field", [f.name for f in fields(Run)])
def test_every_field_is_part_of_the_hash(field):
    other = {
        "dataset": "bike",
        "noise": gamma(0.25),
        "loss": Loss("l2"),
        "test_region": "quiet",
        "optimizer": "sgd",
        "learning_rate": 0.5,
    }
    images = replace(RUN, dataset="utkface", pixels=64)
    before = images if field == "pixels" else RUN
    changed = replace(before, **{field: other.get(field, 7)})
    assert changed.key != before.key


@pytest.mark.parametrize(
    "change", [{"level": 2.0}, {"disturbance": 1.0}, {"squared_reading": True}, {"kind": "binary"}]
)
def test_every_field_of_the_noise_is_part_of_the_hash(change):
    assert replace(RUN, noise=replace(RUN.noise, **change)).key != RUN.key


def test_invalid_settings_of_a_run_are_errors():
    for construct in (
        lambda: Noise("poisson"),
        lambda: Loss("l1"),
        lambda: replace(RUN, dataset="mnist"),
        lambda: replace(RUN, test_region="left"),
    ):
        with pytest.raises(ValueError, match="must be one of '.*; got '"):
            construct()
    text = RUN.canonical().replace('"version":1', '"version":0')
    with pytest.raises(ValueError, match="expected a run of version 1; got version 0"):
        Run.from_canonical(text)


# Members that train a run.


def test_all_methods_of_a_seed_have_the_same_split_and_noise():
    make_member = MemberFactory()
    biv, l2 = make_member(RUN), make_member(replace(RUN, loss=Loss("l2")))
    assert biv.train.x is l2.train.x
    assert biv.test.x is l2.test.x
    assert (biv.train.y == l2.train.y).all()
    clean = make_member(replace(RUN, noise=Noise()))
    assert clean.train.x is biv.train.x
    residual = (biv.train.y - clean.train.y) / biv.train.variance.sqrt()
    assert residual.std().item() == pytest.approx(1.0, abs=0.1)
    other, other_clean = (
        make_member(replace(RUN, seed=4)),
        make_member(replace(RUN, seed=4, noise=Noise())),
    )
    assert not (other.train.x == biv.train.x).all()
    assert not (other.train.variance == biv.train.variance).any()
    drawn = (other.train.y - other_clean.train.y) / other.train.variance.sqrt()
    assert not drawn.isclose(residual, atol=1e-3).all()


def test_noise_and_labels_have_the_scale_of_the_paper():
    prepared = source("bike2011")
    whole = replace(RUN, train_rows=5_500, test_rows=2_200)
    for noise in (gamma(1.0), Noise("uniform", 1.0), Noise("binary", 0.5), Noise("hours", 0.1)):
        member = MemberFactory()(replace(whole, noise=noise))
        assert member.train.variance.mean().item() == pytest.approx(0.608, rel=0.06)
    half = MemberFactory()(replace(whole, noise=Noise("gamma", 1.0, level=0.5)))
    assert half.train.variance.mean().item() == pytest.approx(0.304, rel=0.06)
    y = prepared.scaler.label(prepared.data.y)
    assert (y.mean(), y.var(ddof=1)) == (pytest.approx(0.0, abs=1e-12), pytest.approx(1.0))
    assert prepared.x.shape == (8645, 19)


def test_a_disturbed_variance_does_not_change_the_labels():
    make_member = MemberFactory()
    plain, disturbed, squared = (
        make_member(replace(RUN, noise=replace(gamma(1.0), disturbance=d, squared_reading=s)))
        for d, s in ((0.0, False), (2.0, False), (2.0, True))
    )
    assert (plain.train.y == disturbed.train.y).all()
    spread = [
        ((m.train.variance / plain.train.variance) - 1).square().mean().sqrt().item()
        for m in (disturbed, squared)
    ]
    assert spread[0] == pytest.approx(2**0.5 / 3, rel=0.15)
    assert spread[1] > spread[0]


def test_quiet_and_noisy_hours_divide_the_test_set():
    make_member = MemberFactory()
    sizes = {
        region: len(make_member(replace(RUN, test_region=region)).test)
        for region in ("all", "quiet", "noisy")
    }
    assert sizes["all"] == 264 == sizes["quiet"] + sizes["noisy"]
    hour = source("bike2011").data.feature_names.index("hour_sin")
    quiet, noisy = (
        make_member(replace(RUN, test_region=r)).test.x[:, hour] for r in ("quiet", "noisy")
    )
    assert quiet.min() > noisy.max()
    member = make_member(replace(RUN, noise=Noise("hours", 0.1)))
    assert sorted(set(np.round(member.train.variance.flatten().tolist(), 4))) == pytest.approx(
        [0.0608, 1.2], rel=0.1
    )


def test_cutoffs_are_in_units_of_the_mean_noise_or_in_raw_units():
    make_member, prepared = MemberFactory(), source("bike2011")
    relative = make_member(replace(RUN, loss=Loss("cutoff", threshold=0.25))).loss.threshold
    assert relative == pytest.approx(0.25 * 0.608)
    raw = make_member(
        replace(RUN, loss=Loss("cutoff", threshold=1.0, raw_threshold=True))
    ).loss.threshold
    assert raw == pytest.approx(1.0 / prepared.scaler.std**2)


def test_the_schedule_has_the_settings_of_the_run():
    result = schedule(replace(RUN, optimizer="sgd", test_every=4))
    assert (
        result.epochs,
        result.batch_size,
        result.test_every,
        result.optimizer,
        result.drop_last,
    ) == (
        20,
        256,
        4,
        "sgd",
        True,
    )


# The artefacts.


def test_there_are_sixteen_artefacts():
    whole = artefacts("bike", PRESETS["paper"])
    assert list(whole) == ["table1", *(f"fig{n:02d}" for n in range(1, 16))]
    assert len(whole["table1"].runs(5)) == 110
    assert whole["fig06"].runs(5) == whole["fig07"].runs(5)
    assert whole["fig12"].runs(5) == whole["fig13"].runs(5)
    every = {run for artefact in whole.values() for run in artefact.runs(5)}
    clean = [run for run in every if run.noise.kind == "none"]
    assert len(clean) == 5  # shared by all artefacts
    assert {(run.train_rows, run.test_rows, run.epochs) for run in every} == {(7_000, 3_379, 100)}
    assert {run.batch_size * run.test_every for run in every} == {256}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("fig03", "Gamma_BIV_CO"),
        ("3", "Gamma_BIV_CO"),
        ("Fig3", "Gamma_BIV_CO"),
        ("varnoise", "VarNoise"),
        ("TABLE1", "GammaResults"),
    ],
)
def test_artefacts_are_found_by_number_or_name(name, label):
    assert find(name, SMOKE).label == label


def test_an_unknown_artefact_is_an_error():
    with pytest.raises(
        ValueError, match="unknown table or figure 'fig16'; choose from table1 .*fig15"
    ):
        find("fig16", SMOKE)


def test_every_departure_from_the_paper_is_marked_and_listed():
    root = Path(__file__).parents[2]
    sources = "".join(p.read_text(encoding="utf-8") for p in (root / "src").rglob("*.py"))
    marked = {int(n) for n in re.findall(r"NOTE\[DIFF\] (\d+)", sources)}
    listed = [
        int(n)
        for n in re.findall(
            r"^(\d+)\. \*\*",
            (root / "paper" / "DEVIATIONS.md").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    ]
    assert listed == list(range(1, len(listed) + 1))
    assert marked == set(listed)
