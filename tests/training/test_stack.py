"""Test that stacked training equals the reference loop, and that members are independent."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import biv
from biv.epsilon import MinimumBatchSize
from biv.models import MLP, Periodic
from biv.training import Member, Schedule, Stack, Triplets, train_reference, train_stack
from biv.training.batches import StackBatch
from helpers.training_runs import (
    CURVES,
    FEATURES,
    LOSSES,
    assert_same_bits,
    clean_rows,
    seven_members,
    triplets,
    truth,
)

MODELS = {
    "mlp": MLP(FEATURES, (13, 6)),
    "embedded": MLP(FEATURES, (13, 6), 1, Periodic((0, 3, 5), frequencies=3, width=3)),
}
EACH_MODEL = pytest.mark.parametrize(
    "model",
    [MODELS["mlp"], pytest.param(MODELS["embedded"], marks=pytest.mark.slow)],
    ids=list(MODELS),
)
SCHEDULES = {
    "adam": Schedule(epochs=4, batch_size=51, test_every=3),
    "adamw": Schedule(epochs=4, batch_size=64, optimizer="adamw", weight_decay=0.1),
    "sgd": Schedule(epochs=4, batch_size=51, optimizer="sgd", drop_last=True, test_every=2),
    "momentum": Schedule(
        epochs=4, batch_size=256, optimizer="sgd", momentum=0.9, weight_decay=0.01
    ),
    "averaged": Schedule(epochs=4, batch_size=51, optimizer="adamw", averaging=3, test_every=4),
    "some rows per epoch": Schedule(epochs=4, batch_size=51, epoch_rows=170),
}


@EACH_MODEL
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_a_member_is_independent_of_the_rest_of_the_stack(model, schedule):
    """Alone, among seven, in another order or in a stack of three, the results are identical."""
    members = seven_members()
    seven = train_stack(model, members, schedule)
    reversed_ = train_stack(model, members[::-1], schedule)[::-1]
    some = train_stack(model, [members[5], members[0], members[4]], schedule)
    for trained, again in zip(seven, reversed_, strict=True):
        assert_same_bits(trained, again)
    for trained, position in zip(some, (5, 0, 4), strict=True):
        assert_same_bits(trained, seven[position])
    for member, trained in zip(members, seven, strict=True):
        assert_same_bits(train_stack(model, [member], schedule)[0], trained)


def test_members_may_train_on_different_rows_of_one_table():
    """Selected rows give the same bits as a table of only those rows, in stack and loop."""
    table, schedule, some = triplets(3), SCHEDULES["adam"], torch.arange(5, 300, 2)
    alone = Triplets(table.x[some], table.y[some], table.variance[some])
    members = [Member(table, rows=some), Member(table, rows=some - 1), Member(alone)]
    shared, other, copied = train_stack(MODELS["mlp"], members, schedule)
    assert_same_bits(shared, copied)
    assert not np.array_equal(shared.history.train_loss, other.history.train_loss)
    histories = [
        train_reference(MODELS["mlp"](m.generators()[0]), m, schedule) for m in members[::2]
    ]
    assert np.array_equal(histories[0].train_loss, histories[1].train_loss)


@pytest.mark.parametrize(
    ("rows", "error"),
    [(torch.tensor([0, 300]), ValueError), (torch.tensor([-1]), ValueError), ([0, 1], TypeError),
     (torch.tensor([0.0]), TypeError), (torch.empty(0, dtype=torch.int64), ValueError)],
)  # fmt: skip
def test_invalid_row_indices_raise(rows, error):
    with pytest.raises(error):
        Member(triplets(3), rows=rows)


def test_a_diverged_member_is_independent_of_the_rest_of_the_stack():
    members = seven_members()
    wild = replace(members[2], learning_rate=1e18)
    schedule = Schedule(epochs=6, batch_size=64, test_every=3)
    alone, among = (
        train_stack(MODELS["mlp"], chosen, schedule)[0] for chosen in ([wild], [wild, members[0]])
    )
    assert_same_bits(alone, among)
    history = train_reference(MODELS["mlp"](wild.generators()[0]), wild, schedule)
    for name in CURVES:
        assert getattr(history, name).shape == getattr(alone.history, name).shape


def test_threads_of_the_caller_make_no_difference_and_are_restored():
    """Several threads would divide products in float64 and long sums differently."""
    big = MLP(FEATURES, (300,), 1)
    rows, test = triplets(0, dtype=torch.float64), clean_rows(1, rows=40_000, dtype=torch.float64)
    other = clean_rows(2, rows=40_000, dtype=torch.float64)
    members = [Member(rows, test, seed=k) for k in range(6)] + [Member(rows, other, seed=6)]
    schedule = Schedule(epochs=1, test_every=2)
    whole = train_stack(big, members, schedule)
    torch.set_num_threads(4)
    try:
        for position in (0, 6):
            assert_same_bits(train_stack(big, [members[position]], schedule)[0], whole[position])
        assert torch.get_num_threads() == 4
        pred = Stack(big, members, schedule).predict(test.x)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(1)
    assert torch.equal(pred, Stack(big, members, schedule).predict(test.x))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_members_are_independent_at_the_size_of_the_paper(threads):
    """Test bike data in a stack of several blocks, with one thread or two."""
    code = f"""
import torch, biv
from biv.models import MLP
from biv.training import Member, Schedule, Triplets, train_stack
from helpers.training_runs import assert_same_bits
torch.set_num_threads({threads})
data = biv.datasets.load_bike_2011()
x = biv.preprocessing.FeatureScaler.fit(data.x)(data.x)
y = biv.preprocessing.LabelScaler.fit(data.y).label(data.y)
x, y = torch.tensor(x).float(), torch.tensor(y).float()
losses = [biv.BIVLoss(), biv.L2Loss(), biv.IVLoss(), biv.CutoffLoss(0.5)]
rows = [(x[2200:7700], x[:2200], y[:2200]), (x[:5500], x[5266:], y[5266:])]
members = []
for k in range(22):
    train, x_test, y_test = rows[k % 2]
    noise = torch.Generator().manual_seed(k)
    variance = torch.rand(5500, generator=noise)
    noisy = y[:5500] + variance.sqrt() * torch.randn(5500, generator=noise)
    test = Triplets(x_test, y_test) if k in (0, 1, 9) else members[k % 2].test
    members.append(Member(Triplets(train, noisy, variance), test, losses[k % 4], seed=k))
schedule = Schedule(epochs=2, drop_last=True)
whole = train_stack(MLP(19), members, schedule)
part = train_stack(MLP(19), members[6:0:-1], schedule)[::-1]
for member, trained in zip(part, whole[1:7]):
    assert_same_bits(member, trained)
assert_same_bits(train_stack(MLP(19), [members[9]], schedule)[0], whole[9])
"""
    path = str(next(p for p in sys.path if p.endswith("tests")))
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": path})


@EACH_MODEL
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)])
def test_ten_steps_equal_the_reference_loop(model, schedule, dtype, tolerance):
    """Compare losses, effective sizes, test errors and every parameter after ten steps."""
    ten = replace(schedule, epochs=math.ceil(10 / schedule.steps_per_epoch(300)))
    for member, trained in zip(
        members := seven_members(dtype), train_stack(model, members, ten), strict=True
    ):
        network = model(member.generators()[0]).to(dtype)
        history = train_reference(network, member, ten)
        assert len(history.train_loss) >= 10
        for name in CURVES:
            np.testing.assert_allclose(
                getattr(trained.history, name), getattr(history, name), tolerance, tolerance
            )
        reference = network.state_dict()
        for name, value in trained.module.state_dict().items():
            torch.testing.assert_close(value, reference[name], rtol=tolerance, atol=tolerance)


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.003),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.003, weight_decay=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.003),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.003, momentum=0.9, weight_decay=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_reference_loop_equals_a_handwritten_one(name):
    """The handwritten loop uses torch's optimizers, and draws orders from `order_seed`."""
    schedule, rows = SCHEDULES[name], triplets(0)
    member = Member(rows, None, biv.BIVLoss(), learning_rate=0.003, seed=5, order_seed=6)
    network = MODELS["mlp"](torch.Generator().manual_seed(5))
    history = train_reference(network, member, schedule)
    twin = MODELS["mlp"](torch.Generator().manual_seed(5))
    optimizer, order = OPTIMIZERS[name](twin.parameters()), torch.Generator().manual_seed(6)
    losses = []
    for _ in range(4):
        batches = torch.randperm(300, generator=order).split(schedule.batch_size)
        for batch in batches[:-1] if schedule.drop_last else batches:
            loss = biv.biv_loss(twin(rows.x[batch]), rows.y[batch], rows.variance[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert history.train_loss.tolist() == losses
    for one, other in zip(network.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_reference_loop_sets_training_and_evaluation_mode():
    """A module may have dropout, which must be off while it is tested."""
    modes = []

    class Watched(torch.nn.Linear):
        def forward(self, x):
            modes.append((self.training, len(x)))
            return super().forward(x)

    member = Member(triplets(0, rows=100), clean_rows(1), biv.BIVLoss())
    train_reference(Watched(FEATURES, 1), member, Schedule(epochs=2, batch_size=50, test_every=2))
    assert modes == [(True, 50), (True, 50), (False, 70)] * 2
    untested = Watched(FEATURES, 1)
    train_reference(untested, replace(member, test=None), Schedule(epochs=1))
    assert not untested.training  # ready to predict


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_missing_and_ignored_labels_and_sample_weights(loss):
    """Compare with the reference loop, with two outputs."""
    rows = triplets(0, outputs=2, dtype=torch.float64)
    y, variance = rows.y.clone(), rows.variance.clone()
    y[::7, 0], variance[::5, 1] = torch.nan, torch.inf
    importance = torch.rand(300, 2, generator=torch.Generator().manual_seed(1)).double()
    importance[::11] = 0.0
    member = Member(
        Triplets(rows.x, y, variance, importance),
        clean_rows(2, outputs=2, dtype=torch.float64),
        loss,
    )
    model, schedule = MLP(FEATURES, (13, 6), 2), Schedule(epochs=2, batch_size=51)
    (trained,) = train_stack(model, [member], schedule)
    network = model(member.generators()[0]).double()
    history = train_reference(network, member, schedule)
    for name in CURVES:
        np.testing.assert_allclose(getattr(trained.history, name), getattr(history, name), 1e-10)
    for one, other in zip(network.parameters(), trained.module.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_ignored_labels_may_be_outside_the_domain_of_the_loss():
    """The loss has a logarithm of the prediction, which is negative for a missing label."""
    pred = torch.tensor([[[2.0, -3.0]], [[-1.0, 4.0]]])
    share = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    batch = StackBatch(torch.zeros(2, 2), torch.ones(2, 1, 2), share, torch.ones(2))
    poisson = [lambda p, t: p - t * p.log()] * 2
    losses, gradient = batch.losses(pred, poisson)
    torch.testing.assert_close(losses, torch.tensor([2 - math.log(2), 4 - math.log(4)]))
    torch.testing.assert_close(gradient, torch.tensor([[[0.5, 0.0]], [[0.0, 0.75]]]))


def test_members_share_the_features_of_one_tensor():
    rows = triplets(0)
    noisier = Triplets(rows.x, rows.y + 1, rows.variance)
    copied = Triplets(rows.x.clone(), rows.y)
    members = [Member(rows), Member(noisier), Member(copied, loss=biv.L2Loss())]
    assert len(Stack(MODELS["mlp"], members, Schedule())._batches.pool) == 600 + 1


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_a_batch_without_positive_weights_changes_nothing(schedule):
    """A cutoff keeps few rows of batches of two; weight decay and momentum are skipped too."""
    rows = triplets(0, rows=40, dtype=torch.float64)
    member = Member(rows, None, biv.CutoffLoss(0.2), learning_rate=0.01)
    few = replace(schedule, batch_size=2, epochs=3)
    neighbour = Member(triplets(1, rows=40, dtype=torch.float64), None, biv.L2Loss(), seed=1)
    model = MODELS["mlp"]
    trained = train_stack(model, [member, neighbour], few)
    for one, result in zip((member, neighbour), trained, strict=True):
        network = model(one.generators()[0]).double()
        history = train_reference(network, one, few)
        for name in CURVES:
            np.testing.assert_allclose(
                getattr(result.history, name), getattr(history, name), 1e-9, 1e-12
            )
        for a, b in zip(network.parameters(), result.module.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    empty = trained[0].history.effective_batch_size == 0
    assert 10 < empty.sum() < 50
    assert (trained[0].history.train_loss[empty] == 0).all()
    assert (trained[1].history.effective_batch_size == 2).all()


def test_a_first_batch_without_positive_weights_in_some_members():
    """Torch's fused SGD does not support a momentum that exists for some parameters only."""
    rows = triplets(0, rows=8, dtype=torch.float64)
    variance = torch.full_like(rows.variance, torch.inf)
    variance[3] = 1.0
    members = [
        Member(Triplets(rows.x, rows.y, v), None, biv.BIVLoss(), seed=seed)
        for seed, v in enumerate((variance, rows.variance, variance))
    ]
    schedule = Schedule(epochs=3, batch_size=2, optimizer="sgd", momentum=0.9)
    results = train_stack(MODELS["mlp"], members, schedule)
    for member, result in zip(members, results, strict=True):
        network = MODELS["mlp"](member.generators()[0]).double()
        history = train_reference(network, member, schedule)
        np.testing.assert_allclose(result.history.train_loss, history.train_loss, 1e-10)
        for one, other in zip(network.parameters(), result.module.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_batch_without_positive_weights_leaves_the_optimizer_state_unchanged():
    """Check the number of updates of that member and of its neighbour."""
    rows = triplets(0, rows=32)
    variance = torch.full_like(rows.variance, torch.inf)
    variance[:4] = 1.0
    few = Member(Triplets(rows.x, rows.y, variance), None, biv.BIVLoss())
    stack = Stack(MODELS["mlp"], [few, replace(few, train=rows)], Schedule(epochs=1, batch_size=4))
    stack.run_epoch()
    sizes = stack.histories()[0].effective_batch_size
    steps = stack._optimizer.state_dict()["updates"].tolist()
    assert steps == [(sizes > 0).sum(), 8]
    assert 0 < steps[0] < 8


def overflowing(member):
    """Give one label so small a variance that its squared gradient overflows, but not the loss."""
    variance = member.train.variance.clone()
    variance[5] = 1e-25
    train = Triplets(member.train.x, member.train.y, variance)
    return replace(member, train=train, loss=biv.IVLoss())


DIVERGING = {
    "a loss": lambda member: replace(member, learning_rate=1e18),
    "a moment": overflowing,
}


@pytest.mark.parametrize("diverging", DIVERGING.values(), ids=DIVERGING)
def test_a_member_that_diverges_is_frozen_and_marked(diverging):
    members = seven_members()
    schedule = Schedule(epochs=6, batch_size=64)
    quiet = train_stack(MODELS["mlp"], members, schedule)
    members[2] = diverging(members[2])
    trained = train_stack(MODELS["mlp"], members, schedule)
    for position in (0, 1, 3, 4, 5, 6):
        assert trained[position].history.diverged_at is None
        assert_same_bits(trained[position], quiet[position])
    history = trained[2].history
    assert 1 <= history.diverged_at < 20
    assert history.diverged
    assert np.isnan(history.train_loss[history.diverged_at :]).all()
    assert np.isnan(history.test_loss[history.diverged_at - 1 :]).all()
    network = MODELS["mlp"](members[2].generators()[0])
    assert train_reference(network, members[2], schedule).diverged_at == history.diverged_at
    # Frozen: its parameters at the end are those of the step at which it diverged.
    shorter = replace(schedule, epochs=math.ceil(history.diverged_at / 5))
    then = train_stack(MODELS["mlp"], members, shorter)[2].module
    for now, before in zip(trained[2].module.parameters(), then.parameters(), strict=True):
        torch.testing.assert_close(now, before, rtol=0, atol=0, equal_nan=True)


OVERFLOWS = {
    "weight decay, a moment": ({}, {"weight_decay": 1e25}),
    "the last step": (
        {"learning_rate": 1e37},
        {"optimizer": "sgd", "epochs": 1, "batch_size": 300},
    ),
    "decoupled decay": ({"learning_rate": 1e3}, {"optimizer": "adamw", "weight_decay": 1e38}),
}


@pytest.mark.parametrize(("member", "schedule"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_every_overflow_counts_as_divergence(member, schedule):
    """Test parameters and moments that overflow without a large gradient or a later loss."""
    rows = triplets(0)
    wild = Member(Triplets(rows.x, 1e3 * rows.y, rows.variance), None, biv.L2Loss(), **member)
    settings = Schedule(**{"epochs": 2, "batch_size": 64, **schedule})
    history = train_reference(MODELS["mlp"](wild.generators()[0]), wild, settings)
    assert history.diverged_at is not None
    (trained,) = train_stack(MODELS["mlp"], [wild], settings)
    assert trained.history.diverged_at == history.diverged_at


def test_an_ignored_label_cannot_cause_divergence():
    """Its features are so large that its prediction overflows, but it is never trained on."""
    rows = triplets(0, rows=60)
    x, variance = rows.x.clone(), rows.variance.clone()
    x[0], variance[0] = 3e38, torch.inf
    members = [Member(Triplets(x, rows.y, variance), seed=seed) for seed in range(4)]
    for trained in train_stack(MLP(FEATURES, ()), members, Schedule(epochs=3, batch_size=50)):
        assert trained.history.diverged_at is None


def test_padding_rows_have_no_effect():
    """A row that overflows in a hidden layer affects only the batches that contain it."""
    rows = triplets(0, rows=60)
    x = rows.x.clone()
    x[0] = 3e38
    members = [Member(Triplets(x, rows.y, rows.variance), seed=seed) for seed in range(6)]
    schedule = Schedule(epochs=1, batch_size=25)
    steps = []
    for member, trained in zip(members, train_stack(MODELS["mlp"], members, schedule), strict=True):
        network = MODELS["mlp"](member.generators()[0])
        steps.append(train_reference(network, member, schedule).diverged_at)
        assert trained.history.diverged_at == steps[-1]
    assert len(set(steps)) > 1


def test_a_user_s_loss_is_not_called_with_diverged_values():
    def base(pred, target):
        assert bool(pred.isfinite().all())
        return (pred - target).abs()

    rows = triplets(0)
    wild = Member(rows, None, biv.BIVLoss(base=base), learning_rate=1e20)
    quiet = Member(rows, None, biv.BIVLoss())
    first = Schedule(epochs=1, batch_size=300)
    wild_frozen = Stack(MODELS["mlp"], [wild, quiet], replace(first, epochs=5))
    wild_frozen._curves.frozen_at[0] = 1
    wild_frozen._stacked.parameters[0] = torch.nan
    wild_frozen.run_epoch()
    assert wild_frozen.histories()[1].diverged_at is None


def test_variances_are_checked_on_every_batch():
    rows = triplets(0, rows=60)
    variance = torch.ones(60, 1)
    variance[:20] = 0.0
    loss = biv.IVLoss(MinimumBatchSize(fraction=0.9))
    member = Member(Triplets(rows.x, rows.y, variance), None, loss)
    for train in (
        lambda schedule: train_stack(MODELS["mlp"], [member], schedule),
        lambda schedule: train_reference(MODELS["mlp"](torch.Generator()), member, schedule),
    ):
        with pytest.raises(ValueError, match="variance must be positive if epsilon is 0"):
            train(Schedule(epochs=3, batch_size=2))


def test_training_stops_if_all_members_have_diverged(monkeypatch):
    members = [DIVERGING["a loss"](member) for member in seven_members()[:2]]
    stack = Stack(MODELS["mlp"], members, Schedule(epochs=50, batch_size=64))
    stack.run_epoch()
    assert stack.all_frozen
    run, epochs = Stack.run_epoch, []
    monkeypatch.setattr(Stack, "run_epoch", lambda *args: (epochs.append(1), run(*args)))
    trained = train_stack(MODELS["mlp"], members, Schedule(epochs=50, batch_size=64))
    assert len(epochs) < 5
    assert all(one.history.diverged for one in trained)
    assert all(one.history.train_loss.shape == (250,) for one in trained)


def test_training_on_clean_labels_learns_the_function():
    """The error on a smooth function falls well below the label variance."""
    member = Member(
        Triplets(triplets(0, rows=2000).x, truth(triplets(0, rows=2000).x)),
        clean_rows(1),
        biv.L2Loss(),
    )
    (trained,) = train_stack(MLP(FEATURES, (50, 20)), [member], Schedule(epochs=20, batch_size=64))
    assert trained.history.test_loss[-1] < 0.1 * clean_rows(1).y.var().item()
    with torch.no_grad():
        error = (trained.module(member.test.x) - member.test.y).square().mean().item()
    assert error == pytest.approx(trained.history.test_loss[-1], rel=1e-5)


@pytest.mark.parametrize(
    ("eta", "weight"), [(0, lambda t: 1), (1, lambda t: t), (3, lambda t: t * (t + 1) * (t + 2))]
)
def test_an_average_weights_steps_by_a_power_of_time(eta, weight):
    """Step t has weight t^η approximately, for an integer η; all steps are equal for η = 0."""
    members = seven_members()[:3]
    schedule = Schedule(epochs=3, batch_size=51, averaging=eta, test_every=6)
    stack, seen = Stack(MODELS["mlp"], members, schedule), []
    plain = Stack(MODELS["mlp"], members, replace(schedule, averaging=None))
    for _ in range(3):
        plain.run_epoch(lambda: seen.append([plain.module(r) for r in range(3)]))
        stack.run_epoch()
    weights = [weight(t) for t in range(1, 19)]
    for r, member in enumerate(members):
        average, last = stack.module(r), plain.module(r)
        for name, value in average.named_parameters():
            steps = torch.stack([step[r].get_parameter(name).detach().double() for step in seen])
            mean = torch.einsum("t,t...->...", torch.tensor(weights).double(), steps) / sum(weights)
            torch.testing.assert_close(value.double(), mean, rtol=1e-4, atol=1e-6)
            assert not torch.allclose(value, last.get_parameter(name))
        with torch.no_grad():
            pred = average(member.test.x)
        torch.testing.assert_close(stack.predict(member.test.x)[r], pred)
        score = (pred - member.test.y).square().mean().item()
        assert stack.histories()[r].test_loss[-1] == pytest.approx(score, rel=1e-5)
        assert (stack.histories()[r].train_loss == plain.histories()[r].train_loss).all()


def test_the_average_of_a_diverged_member_stays_finite():
    members = seven_members()[:3]
    members[1] = replace(members[1], learning_rate=1e18)
    schedule = Schedule(epochs=2, batch_size=51, averaging=1, test_every=None)
    trained = train_stack(MODELS["mlp"], members, schedule)
    assert trained[1].history.diverged_at is not None
    assert all(p.isfinite().all() for p in trained[1].module.parameters())


def test_predictions_equal_those_of_the_modules():
    members = seven_members()
    stack = Stack(MODELS["embedded"], members, Schedule(batch_size=64))
    stack.run_epoch()
    x = clean_rows(5, rows=1100).x
    pred = stack.predict(x)
    assert pred.shape == (7, 1100, 1)
    for member in range(7):
        with torch.no_grad():
            expected = stack.module(member)(x)
        torch.testing.assert_close(pred[member], expected, rtol=1e-5, atol=1e-6)


def test_curves_have_one_value_per_step_or_evaluation():
    members = seven_members()
    trained = train_stack(
        MODELS["mlp"],
        [*members[:2], replace(members[2], test=None)],
        Schedule(epochs=3, batch_size=64, test_every=4),
    )
    for history in (one.history for one in trained[:2]):
        assert history.train_loss.shape == history.effective_batch_size.shape == (15,)
        assert history.test_step.tolist() == [4, 8, 12]
        assert history.test_loss.shape == (3,)
    assert trained[2].history.test_loss.shape == trained[2].history.test_step.shape == (0,)
    assert trained[2].history.diverged_at is None  # a member without test rows has not diverged
    # An incomplete last batch is trained on, and its effective size is its number of rows.
    assert trained[1].history.effective_batch_size.tolist() == [64, 64, 64, 64, 44] * 3
    untested = train_stack(MODELS["mlp"], members[:2], Schedule(epochs=1, test_every=None))
    assert untested[0].history.test_loss.shape == (0,)


def test_training_draws_from_no_global_generator():
    before = torch.random.get_rng_state()
    member = seven_members()[0]
    train_stack(MODELS["embedded"], [member], Schedule(epochs=1, batch_size=64))
    train_reference(MODELS["mlp"](member.generators()[0]), member, Schedule(epochs=1))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("flushed", [False, True])
def test_denormals_are_flushed_inside_and_restored(flushed):
    denormal = torch.tensor(torch.finfo(torch.float32).tiny)
    seen = []

    def base(pred, target):
        seen.append(bool(denormal / 2 == 0) and torch.get_num_threads() == 1)
        return (pred - target).abs()

    torch.set_flush_denormal(flushed)
    torch.set_num_threads(2)
    try:
        member = replace(seven_members()[0], loss=biv.BIVLoss(base=base))
        train_stack(MODELS["mlp"], [member], Schedule(epochs=1))
        assert bool(denormal / 2 == 0) is flushed
        Stack(MODELS["mlp"], [member], Schedule(epochs=1)).run_epoch()
        assert bool(denormal / 2 == 0) is flushed
        assert torch.get_num_threads() == 2
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(1)
    assert seen
    assert all(seen)
