"""Cross-fitting: honest predictions, an epoch chosen on noisy labels, an ensemble of all rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import biv
from biv.models import MLP
from biv.training import Schedule, Triplets, cross_fit, cross_fitting, ensembles
from biv.training.cross_fitting import _make_folds, _make_members, _OutOfFoldScore
from biv.training.held_out import HeldOutScore
from helpers.trainings import FEATURES, triplets, truth

MODEL = MLP(FEATURES, (16, 8))
SCHEDULE = Schedule(epochs=6, batch_size=32, optimizer="adamw", averaging=4, test_every=None)


@pytest.mark.parametrize(("rows", "folds"), [(103, 8), (15, 8), (8, 8), (2, 2), (104, 8), (9, 4)])
def test_folds_are_equal_and_cover_all_rows(rows, folds):
    parts = _make_folds(rows, folds, seed=3)
    assert {len(part) for part in parts} == {-(-rows // folds)}
    assert len(torch.cat(parts).unique()) == rows
    assert len(parts) == folds


def test_folds_are_seeded():
    parts = _make_folds(103, 8, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(parts, _make_folds(103, 8, seed=3), strict=True))
    assert not torch.equal(parts[0], _make_folds(103, 8, seed=4)[0])


def test_a_row_is_judged_by_members_that_have_not_seen_it():
    """To them it does not matter what its label is, to the bit; to all others it does."""
    rows = triplets(0, rows=240)
    other = rows.y.clone()
    other[17] += 10
    one, two = (
        cross_fit(MODEL, Triplets(rows.x, y, rows.variance), replace(SCHEDULE, epochs=1))
        for y in (rows.y, other)
    )
    (owner,) = (k for k, part in enumerate(_make_folds(240, 8, seed=0)) if 17 in part)
    same = (one.predict(rows.x) == two.predict(rows.x)).flatten(1).all(dim=1)
    assert same.tolist() == [k == owner for k in range(8)]
    assert one.out_of_fold[17] == two.out_of_fold[17]


def by_those_who_left_it_out(fitted, rows):
    """Of eight members and four folds: the mean of the two that have not seen a row."""
    each = fitted.predict(rows.x)
    expected = torch.full_like(rows.y, torch.nan)
    for fold, part in enumerate(_make_folds(len(rows), 4, seed=0)):
        expected[part] = each[2 * fold : 2 * fold + 2][:, part].mean(dim=0)
    return expected


def test_out_of_fold_predictions_are_those_of_the_modules():
    rows = triplets(1, rows=203)
    fitted = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4, patience=9)
    torch.testing.assert_close(fitted.out_of_fold, by_those_who_left_it_out(fitted, rows))


def test_the_epoch_with_the_lowest_score_is_chosen():
    rows = triplets(2, rows=240)
    fitted = cross_fit(MODEL, rows, replace(SCHEDULE, epochs=40), learning_rate=0.03, patience=5)
    scores = fitted.scores
    assert scores.argmin() + 1 == fitted.epoch < 40
    at, lowest = 0, np.inf  # the last score that was better by 1%
    for epoch, score in enumerate(scores, start=1):
        if score <= lowest:
            at, lowest = epoch, score - 0.005 * abs(score)
    assert len(scores) == at + 5
    scored = torch.cat(_make_folds(240, 8, seed=0))
    pred, y, variance = (t[scored] for t in (fitted.out_of_fold, rows.y, rows.variance))
    assert fitted.scores.min() == pytest.approx(HeldOutScore(y, variance)(pred), rel=1e-9)
    assert fitted.tau2 == biv.metrics.residual_variance(pred, y, variance)
    shorter = cross_fit(MODEL, rows, replace(SCHEDULE, epochs=fitted.epoch), learning_rate=0.03)
    torch.testing.assert_close(shorter.predict(rows.x), fitted.predict(rows.x), rtol=0, atol=0)


def test_the_score_is_the_error_to_labels_that_nobody_has_seen():
    """Within its noise, though every label that it was computed from is noisy."""
    x = triplets(3, rows=4000).x
    noise = torch.Generator().manual_seed(5)
    variance = 0.05 + 2 * torch.rand(len(x), 1, generator=noise)
    y = truth(x) + variance.sqrt() * torch.randn(len(x), 1, generator=noise)
    schedule = replace(SCHEDULE, epochs=12, batch_size=128)
    fitted = cross_fit(MODEL, Triplets(x, y, variance), schedule)
    error = (fitted.out_of_fold - truth(x)).square().mean().item()
    assert fitted.scores[fitted.epoch - 1] == pytest.approx(error, rel=0.15)
    assert fitted.tau2 == pytest.approx(error, rel=0.2)
    fresh = triplets(4, rows=1000).x
    ensemble = (fitted.predict(fresh).mean(dim=0) - truth(fresh)).square().mean().item()
    assert ensemble < error


def test_the_same_seed_gives_the_same_ensemble():
    rows = triplets(5, rows=120)
    one, same, other = (cross_fit(MODEL, rows, SCHEDULE, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.predict(rows.x), same.predict(rows.x))
    assert not torch.equal(one.predict(rows.x), other.predict(rows.x))


def test_no_two_members_of_any_seed_begin_alike():
    rows = triplets(5, rows=120)
    parts = _make_folds(120, 4, seed=0)
    seeds = [
        m.seed for s in (0, 1, 2) for m in _make_members(rows, parts, biv.L2Loss(), 1e-3, 8, s)
    ]
    assert len(set(seeds)) == 24


def test_without_variances_labels_are_clean():
    rows = triplets(6, rows=120)
    fitted = cross_fit(MODEL, Triplets(rows.x, rows.y), SCHEDULE)
    scored = torch.cat(_make_folds(120, 8, seed=0))
    plain = (fitted.out_of_fold - rows.y)[scored].square().mean().item()
    assert fitted.scores[fitted.epoch - 1] == pytest.approx(plain, rel=1e-5)
    assert fitted.tau2 == pytest.approx(plain, rel=1e-5)


def test_several_labels_some_missing_and_importances():
    rows = triplets(7, rows=160, outputs=2)
    y = rows.y.clone()
    y[::3, 1] = torch.nan
    weight = torch.ones(160, 1)
    weight[:40] = 0
    fitted = cross_fit(
        MLP(FEATURES, (16, 8), 2), Triplets(rows.x, y, rows.variance, weight), SCHEDULE
    )
    assert fitted.predict(rows.x).shape == (8, 160, 2)
    assert np.isfinite(fitted.scores).all()
    assert fitted.tau2 > 0


def test_members_that_diverge_do_not_win():
    rows = triplets(8, rows=120)
    with pytest.raises(ValueError, match="smaller learning_rate; got 1e\\+30"):
        cross_fit(MODEL, rows, replace(SCHEDULE, averaging=None), learning_rate=1e30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 1}, "folds must be an integer >= 2; got 1"),
        ({"folds": 8, "members": 12}, "members must be a multiple of folds, 8; got 12"),
        (
            {"folds": 200, "members": 200},
            "there must be at least as many rows as folds, 200; got 120",
        ),
        ({"patience": 0}, "patience must be an integer >= 1; got 0"),
    ],
)
def test_what_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        cross_fit(MODEL, triplets(9, rows=120), SCHEDULE, **options)


def test_the_score_is_that_of_the_whole_ensemble():
    """Members that miss by chance, each for itself: more of them miss less."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8000, FEATURES, generator=generator)
    common = 0.3 * torch.randn(8000, 1, generator=generator)  # what all members miss alike
    members = truth(x) + common + torch.randn(2, 8000, 1, generator=generator)
    judge = _OutOfFoldScore(Triplets(x, truth(x)), _make_folds(8000, 8, seed=0), members=16)
    assert judge.score(members) == pytest.approx(0.3**2 + 1 / 16, rel=0.1)
    assert judge.score(members[:1]) == pytest.approx(0.3**2 + 1, rel=0.1)  # one says no more


def held_out_rows():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(400, 2, generator=generator, dtype=torch.float64)
    variance = 0.01 + torch.rand(400, 2, generator=generator, dtype=torch.float64)
    f, g = (y + torch.randn(400, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    return y, variance, f, g


def test_labels_that_do_not_count_have_no_part_in_a_score():
    """Neither their errors nor what a larger ensemble would gain there."""
    y, variance, f, _ = held_out_rows()
    gain = torch.rand(400, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weight = torch.ones(400, 2, dtype=torch.float64)
    y[:250, 1], variance[250:300, 1], weight[300:320, 1] = torch.nan, torch.inf, 0.0
    score = HeldOutScore(y, variance, weight)
    f[:320, 1], gain[:320, 1] = 1e6, -1e6
    alone = [
        HeldOutScore(y[rows, k, None], variance[rows, k, None])(
            f[rows, k, None], gain[rows, k, None]
        )
        for k, rows in ((0, slice(None)), (1, slice(320, None)))
    ]
    assert score(f, gain) == pytest.approx(sum(alone) / 2)


def test_scores_of_two_epochs_differ_by_what_the_error_bars_do_not_change():
    """The weights do not depend on the predictions, so that σ² cancels in a difference."""
    y, variance, f, g = (t[:, :1] for t in held_out_rows())
    score = HeldOutScore(y, variance)
    epsilon = 0.1 * biv.metrics.label_variance(y, variance)
    w = 1 / (variance + epsilon)
    apart = (w * ((f - y).square() - (g - y).square())).sum() / w.sum()
    assert score(f) - score(g) == pytest.approx(apart.item())
    assert score(f.fill_(torch.inf)) == float("inf")


def test_one_label_and_equal_labels_have_a_score():
    assert HeldOutScore(torch.ones(1, 1), torch.ones(1, 1))(torch.zeros(1, 1)) == 0.0
    assert HeldOutScore(torch.ones(3, 1), None)(torch.zeros(3, 1)) == 1.0


def test_networks_that_cannot_be_stacked_are_trained_one_by_one(monkeypatch):
    """To the same end, as far as rounding lets them."""
    rows = triplets(11, rows=203)
    stacked = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4)
    monkeypatch.setattr(ensembles, "can_be_stacked", lambda _: False)
    single = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4)
    assert single.epoch == stacked.epoch
    np.testing.assert_allclose(single.scores, stacked.scores, rtol=1e-3)
    torch.testing.assert_close(single.predict(rows.x), stacked.predict(rows.x), rtol=0, atol=2e-3)
    assert not any(module.training for module in single.modules)


def test_many_rows_are_predicted_some_at_a_time(monkeypatch):
    fitted = cross_fit(MODEL, triplets(12, rows=120), SCHEDULE)
    x = triplets(13, rows=100).x
    whole = fitted.predict(x)
    monkeypatch.setattr(cross_fitting, "CHUNK", 33)
    torch.testing.assert_close(fitted.predict(x), whole)


def test_of_many_rows_some_are_judged_and_all_are_predicted(monkeypatch):
    rows = triplets(14, rows=403)
    whole = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4)
    monkeypatch.setattr(cross_fitting, "SCORED_ROWS", 100)
    some = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4)
    judge = _OutOfFoldScore(rows, _make_folds(403, 4, seed=0), members=8)
    assert 70 <= len(judge.y) <= 100
    np.testing.assert_allclose(some.scores, whole.scores, rtol=0.3)
    assert not np.array_equal(some.scores, whole.scores)
    torch.testing.assert_close(some.out_of_fold, by_those_who_left_it_out(some, rows))


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_interrupted_and_resumed_to_the_same_bits(seconds, tmp_path):
    rows, path = triplets(15, rows=203), tmp_path / "fit.pt"
    options = {"members": 8, "folds": 4, "patience": 2}
    schedule = replace(SCHEDULE, epochs=20)
    straight = cross_fit(MODEL, rows, schedule, learning_rate=0.03, **options)
    assert 3 < len(straight.scores) < 20  # it stopped by itself

    def interrupt(stack):
        if stack.epoch == 3:
            raise KeyboardInterrupt

    options |= {"learning_rate": 0.03, "checkpoint": path, "checkpoint_seconds": seconds}
    with pytest.raises(KeyboardInterrupt):
        cross_fit(MODEL, rows, schedule, after_epoch=interrupt, **options)
    epochs = []
    resumed = cross_fit(
        MODEL, rows, schedule, after_epoch=lambda stack: epochs.append(stack.epoch), **options
    )
    again = cross_fit(MODEL, rows, schedule, **options)  # there is nothing left to do
    assert (epochs[0], epochs[-1]) == (3, len(straight.scores))  # the third was not whole
    for other in (resumed, again):
        assert other.epoch == straight.epoch
        assert np.array_equal(other.scores, straight.scores)
        assert torch.equal(other.out_of_fold, straight.out_of_fold)
        assert torch.equal(other.predict(rows.x), straight.predict(rows.x))


def test_a_checkpoint_is_of_one_ensemble(tmp_path):
    from biv.training import train_stack

    rows, path = triplets(16, rows=120), tmp_path / "fit.pt"
    cross_fit(MODEL, rows, SCHEDULE, checkpoint=path)
    with pytest.raises(ValueError, match="fit.pt: the state is from another training"):
        cross_fit(MODEL, triplets(17, rows=120), SCHEDULE, checkpoint=path)
    other = tmp_path / "stack.pt"
    members = _make_members(rows, _make_folds(120, 8, 0), biv.BIVLoss(), 2e-3, 8, 0)
    train_stack(MODEL, members, SCHEDULE, checkpoint=other)
    with pytest.raises(ValueError, match="stack.pt is the checkpoint of another training"):
        cross_fit(MODEL, rows, SCHEDULE, checkpoint=other)


def test_what_cannot_be_stacked_has_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(ensembles, "can_be_stacked", lambda _: False)
    with pytest.raises(
        ValueError, match="checkpoint must be None for networks that cannot be stacked"
    ):
        cross_fit(MODEL, triplets(18, rows=120), SCHEDULE, checkpoint=tmp_path / "fit.pt")
