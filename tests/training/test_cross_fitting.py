"""Test cross-fitting: out-of-fold predictions, the choice of the epoch, and checkpoints."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import biv
from biv.models import MLP
from biv.training import Schedule, Triplets, cross_fit, cross_fitting, ensembles
from biv.training.cross_fitting import _make_folds, _make_members, _OutOfFoldScore
from biv.training.held_out import HeldOutScore
from helpers.training_runs import FEATURES, triplets, truth

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


def test_out_of_fold_members_do_not_depend_on_the_label_of_the_row():
    """Changing a label changes all members but the one that leaves out its row."""
    rows = triplets(0, rows=240)
    other = rows.y.clone()
    other[17] += 10
    one, two = (
        cross_fit(MODEL, Triplets(rows.x, y, rows.variance), replace(SCHEDULE, epochs=1))
        for y in (rows.y, other)
    )
    (left_out_by,) = (k for k, part in enumerate(_make_folds(240, 8, seed=0)) if 17 in part)
    same = (one.predict(rows.x) == two.predict(rows.x)).flatten(1).all(dim=1)
    assert same.tolist() == [k == left_out_by for k in range(8)]
    assert one.out_of_fold[17] == two.out_of_fold[17]


def mean_of_out_of_fold_members(fitted, rows):
    """Return the mean prediction of the two of eight members that left out a row's fold."""
    each = fitted.predict(rows.x)
    expected = torch.full_like(rows.y, torch.nan)
    for fold, part in enumerate(_make_folds(len(rows), 4, seed=0)):
        expected[part] = each[2 * fold : 2 * fold + 2][:, part].mean(dim=0)
    return expected


def test_out_of_fold_predictions_are_means_of_the_modules_predictions():
    rows = triplets(1, rows=203)
    fitted = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4, patience=9)
    torch.testing.assert_close(fitted.out_of_fold, mean_of_out_of_fold_members(fitted, rows))


def test_the_epoch_with_the_lowest_score_is_chosen():
    rows = triplets(2, rows=240)
    fitted = cross_fit(MODEL, rows, replace(SCHEDULE, epochs=40), learning_rate=0.03, patience=5)
    scores = fitted.scores
    assert scores.argmin() + 1 == fitted.epoch < 40
    improved_at, target = 0, np.inf  # last epoch with an improvement, and the score that is one
    for epoch, score in enumerate(scores, start=1):
        if score <= target:
            improved_at, target = epoch, score - 0.005 * abs(score)
    assert len(scores) == improved_at + 5
    scored = torch.cat(_make_folds(240, 8, seed=0))
    pred, y, variance = (t[scored] for t in (fitted.out_of_fold, rows.y, rows.variance))
    assert fitted.scores.min() == pytest.approx(HeldOutScore(y, variance)(pred), rel=1e-9)
    assert fitted.tau2 == biv.metrics.residual_variance(pred, y, variance)
    shorter = cross_fit(MODEL, rows, replace(SCHEDULE, epochs=fitted.epoch), learning_rate=0.03)
    torch.testing.assert_close(shorter.predict(rows.x), fitted.predict(rows.x), rtol=0, atol=0)


def test_score_estimates_the_error_to_the_true_labels():
    """Compare the score, computed from noisy labels, with the true error, within its noise."""
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


def test_members_of_all_seeds_have_different_seeds():
    rows = triplets(5, rows=120)
    parts = _make_folds(120, 4, seed=0)
    seeds = [
        m.seed for s in (0, 1, 2) for m in _make_members(rows, parts, biv.L2Loss(), 1e-3, 8, s)
    ]
    assert len(set(seeds)) == 24


def test_labels_without_variances_are_taken_as_clean():
    rows = triplets(6, rows=120)
    fitted = cross_fit(MODEL, Triplets(rows.x, rows.y), SCHEDULE)
    scored = torch.cat(_make_folds(120, 8, seed=0))
    plain = (fitted.out_of_fold - rows.y)[scored].square().mean().item()
    assert fitted.scores[fitted.epoch - 1] == pytest.approx(plain, rel=1e-5)
    assert fitted.tau2 == pytest.approx(plain, rel=1e-5)


def test_several_outputs_with_missing_labels_and_sample_weights():
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


def test_divergence_of_all_members_raises():
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
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        cross_fit(MODEL, triplets(9, rows=120), SCHEDULE, **options)


def test_score_estimates_the_error_of_the_whole_ensemble():
    """With independent errors of the members, an ensemble of more members has a lower error."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8000, FEATURES, generator=generator)
    common = 0.3 * torch.randn(8000, 1, generator=generator)  # error that all members share
    members = truth(x) + common + torch.randn(2, 8000, 1, generator=generator)
    score = _OutOfFoldScore(Triplets(x, truth(x)), _make_folds(8000, 8, seed=0), members=16)
    assert score.score(members) == pytest.approx(0.3**2 + 1 / 16, rel=0.1)
    assert score.score(members[:1]) == pytest.approx(0.3**2 + 1, rel=0.1)  # one has no known spread


def held_out_rows():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(400, 2, generator=generator, dtype=torch.float64)
    variance = 0.01 + torch.rand(400, 2, generator=generator, dtype=torch.float64)
    f, g = (y + torch.randn(400, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    return y, variance, f, g


def test_ignored_labels_do_not_change_the_score():
    """Neither their errors nor their expected gain by a larger ensemble have an effect."""
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


def test_subtracted_variances_cancel_in_the_difference_of_two_scores():
    """The weights do not depend on the predictions, so that σ² cancels in a difference."""
    y, variance, f, g = (t[:, :1] for t in held_out_rows())
    score = HeldOutScore(y, variance)
    epsilon = 0.1 * biv.metrics.label_variance(y, variance)
    w = 1 / (variance + epsilon)
    expected_difference = (w * ((f - y).square() - (g - y).square())).sum() / w.sum()
    assert score(f) - score(g) == pytest.approx(expected_difference.item())
    assert score(f.fill_(torch.inf)) == float("inf")


def test_score_of_one_label_and_of_equal_labels():
    assert HeldOutScore(torch.ones(1, 1), torch.ones(1, 1))(torch.zeros(1, 1)) == 0.0
    assert HeldOutScore(torch.ones(3, 1), None)(torch.zeros(3, 1)) == 1.0


def test_networks_that_cannot_be_stacked_are_trained_one_after_another(monkeypatch):
    """The result is that of a stack, up to rounding."""
    rows = triplets(11, rows=203)
    stacked = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4)
    monkeypatch.setattr(ensembles, "can_be_stacked", lambda _: False)
    single = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4)
    assert single.epoch == stacked.epoch
    np.testing.assert_allclose(single.scores, stacked.scores, rtol=1e-3)
    torch.testing.assert_close(single.predict(rows.x), stacked.predict(rows.x), rtol=0, atol=2e-3)
    assert not any(module.training for module in single.modules)


def test_predictions_in_chunks_are_the_same(monkeypatch):
    fitted = cross_fit(MODEL, triplets(12, rows=120), SCHEDULE)
    x = triplets(13, rows=100).x
    whole = fitted.predict(x)
    monkeypatch.setattr(cross_fitting, "CHUNK", 33)
    torch.testing.assert_close(fitted.predict(x), whole)


def test_large_tables_are_scored_on_a_sample_and_predicted_completely(monkeypatch):
    rows = triplets(14, rows=403)
    whole = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4)
    monkeypatch.setattr(cross_fitting, "SCORED_ROWS", 100)
    some = cross_fit(MODEL, rows, SCHEDULE, members=8, folds=4)
    score = _OutOfFoldScore(rows, _make_folds(403, 4, seed=0), members=8)
    assert 70 <= len(score.y) <= 100
    np.testing.assert_allclose(some.scores, whole.scores, rtol=0.3)
    assert not np.array_equal(some.scores, whole.scores)
    torch.testing.assert_close(some.out_of_fold, mean_of_out_of_fold_members(some, rows))


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_interrupted_training_resumes_exactly(seconds, tmp_path):
    rows, path = triplets(15, rows=203), tmp_path / "fit.pt"
    options = {"members": 8, "folds": 4, "patience": 2}
    schedule = replace(SCHEDULE, epochs=20)
    straight = cross_fit(MODEL, rows, schedule, learning_rate=0.03, **options)
    assert 3 < len(straight.scores) < 20  # early stopping ended the training

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
    again = cross_fit(MODEL, rows, schedule, **options)  # the training is already complete
    assert (epochs[0], epochs[-1]) == (3, len(straight.scores))  # the third epoch is repeated
    for other in (resumed, again):
        assert other.epoch == straight.epoch
        assert np.array_equal(other.scores, straight.scores)
        assert torch.equal(other.out_of_fold, straight.out_of_fold)
        assert torch.equal(other.predict(rows.x), straight.predict(rows.x))


def test_checkpoint_of_another_ensemble_is_rejected(tmp_path):
    from biv.training import train_stack

    rows, path = triplets(16, rows=120), tmp_path / "fit.pt"
    cross_fit(MODEL, rows, SCHEDULE, checkpoint=path)
    with pytest.raises(ValueError, match="fit.pt: the state is from another training run"):
        cross_fit(MODEL, triplets(17, rows=120), SCHEDULE, checkpoint=path)
    other = tmp_path / "stack.pt"
    members = _make_members(rows, _make_folds(120, 8, 0), biv.BIVLoss(), 2e-3, 8, 0)
    train_stack(MODEL, members, SCHEDULE, checkpoint=other)
    with pytest.raises(ValueError, match="stack.pt is the checkpoint of another training run"):
        cross_fit(MODEL, rows, SCHEDULE, checkpoint=other)


def test_checkpoint_requires_networks_that_can_be_stacked(tmp_path, monkeypatch):
    monkeypatch.setattr(ensembles, "can_be_stacked", lambda _: False)
    with pytest.raises(
        ValueError, match="checkpoint must be None for networks that cannot be stacked"
    ):
        cross_fit(MODEL, triplets(18, rows=120), SCHEDULE, checkpoint=tmp_path / "fit.pt")
