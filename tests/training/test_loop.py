"""Test the training of one network: accumulation, precision, evaluation and checkpoints."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import biv
from biv.epsilon import MinimumBatchSize
from biv.models import MLP, ResNet18
from biv.training import Compute, Member, Schedule, Triplets, load_checkpoint, train_module
from biv.training.loop import Loop, all_finite


def tables(rows=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    variance = torch.rand(rows, generator=generator, dtype=torch.float64) ** 4
    noise = variance.sqrt() * torch.randn(rows, generator=generator, dtype=torch.float64)
    return Triplets(x, x[:, 0] + noise, variance)


def faces(rows=12, size=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (rows, size, size, 3), generator=generator, dtype=torch.uint8)
    y, variance = torch.randn(rows, generator=generator), torch.rand(rows, generator=generator)
    return Triplets(images.permute(0, 3, 1, 2), y, variance)


def small_network(member):
    """Return a network for images that trains quickly and has batch normalisation."""
    generator = member.generators()[0]
    network = nn.Sequential(
        nn.Conv2d(3, 4, 5, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(196, 1)
    )
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -0.1, 0.1, generator=generator)
    return nn.Sequential(Pixels(), network)


class Pixels(nn.Module):
    def forward(self, images):
        return images.float() / 128 - 1


def network_of(member):
    return MLP(features=4)(member.generators()[0]).double()


def parameters(network):
    return torch.cat([p.detach().flatten() for p in network.state_dict().values()])


# Gradient accumulation.

LOSSES = {
    "biv": biv.BIVLoss(0.01),
    "biv, ε by batch": biv.BIVLoss(MinimumBatchSize(fraction=0.4)),
    "l2": biv.L2Loss(),
    "iv": biv.IVLoss(0.05),
    "cutoff": biv.CutoffLoss(0.3),
    "mae": biv.BIVLoss(0.05, base="mae"),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("micro", [1, 3, 7, 16, 40])
def test_accumulated_gradients_are_those_of_the_batch(loss, micro):
    member = Member(tables(), loss=loss, test=replace(tables(seed=1), variance=None))
    schedule = Schedule(epochs=2, batch_size=16)  # the last batch has two rows
    runs = {}
    for compute in (Compute(), Compute(micro_batch=micro)):
        network = network_of(member)
        runs[compute.micro_batch] = (
            train_module(network, member, schedule, compute=compute, progress=False),
            parameters(network),
        )
    whole, parts = runs[None], runs[micro]
    np.testing.assert_allclose(parts[0].train_loss, whole[0].train_loss, rtol=1e-12)
    np.testing.assert_allclose(parts[0].test_loss, whole[0].test_loss, rtol=1e-10)
    assert np.array_equal(parts[0].effective_batch_size, whole[0].effective_batch_size)
    torch.testing.assert_close(parts[1], whole[1], rtol=1e-10, atol=1e-12)


def test_normalising_each_micro_batch_alone_gives_another_loss():
    member = Member(tables(), loss=biv.BIVLoss(0.01))
    loop = Loop(network_of(member), member, Schedule(batch_size=16), Compute(micro_batch=4))
    rows = torch.arange(16)
    loss = loop._backward(rows)
    train = member.train
    losses = [
        member.loss(loop.model(train.x[part]), train.y[part], train.variance[part]).item()
        for part in torch.split(rows, 4)
    ]
    assert abs(loss - np.mean(losses)) > 0.01 * abs(loss)


def test_gradients_of_a_network_for_images_add_up_in_evaluation_mode():
    """With fixed batch statistics, micro-batches give the gradient of the batch."""
    member = Member(faces())
    gradients = []
    for micro in (None, 5):
        network = small_network(member)
        loop = Loop(network, member, Schedule(batch_size=12), Compute(micro_batch=micro))
        network.eval()
        loop._backward(torch.arange(12))
        gradients.append(torch.cat([p.grad.flatten() for p in network.parameters()]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


# Rows, modes and precision.


def test_images_are_not_copied_and_only_the_given_rows_are_used():
    pixels = np.random.default_rng(0).integers(0, 256, (9, 3, 32, 32), dtype=np.uint8)
    pixels.flags.writeable = False
    y = np.arange(9.0)
    y[6:] = np.nan  # rows that are not trained on
    member = Member(Triplets(pixels, y, np.ones(9)), rows=np.arange(6))
    assert member.train.x.numpy().base is pixels or np.shares_memory(member.train.x, pixels)
    assert member.train.y.dtype == torch.float32
    history = train_module(
        small_network(member), member, Schedule(epochs=2, batch_size=6), progress=False
    )
    np.testing.assert_allclose(history.effective_batch_size, 6.0)
    assert repr(member.train).startswith("Triplets(9 rows, 3×32×32 features, 1 labels each")


def test_evaluation_uses_evaluation_mode_and_does_not_change_training():
    train, test = faces(), replace(faces(seed=1), variance=None)
    schedule = Schedule(epochs=2, batch_size=5, test_every=2)
    plain, tested = Member(train), Member(train, test)
    networks = [small_network(plain), small_network(tested)]
    histories = [
        train_module(network, member, schedule, progress=False)
        for network, member in zip(networks, (plain, tested), strict=True)
    ]
    assert torch.equal(parameters(networks[0]), parameters(networks[1]))
    assert np.array_equal(histories[0].train_loss, histories[1].train_loss)
    assert histories[1].test_step.tolist() == [2, 4, 6]
    assert not networks[1].training
    with torch.no_grad():
        last = F.mse_loss(networks[1](test.x), test.y).item()
    np.testing.assert_allclose(histories[1].test_loss[-1], last, rtol=1e-5)


def test_bfloat16_is_close_and_its_loss_is_in_full_precision():
    member = Member(faces(), faces(seed=1).__class__(faces(seed=1).x, faces(seed=1).y))
    seen = []

    class Watched(biv.BIVLoss):
        def forward(self, pred, *arguments, **named):
            seen.append(pred.dtype)
            return super().forward(pred, *arguments, **named)

    half = replace(member, loss=Watched())
    schedule = Schedule(epochs=1, batch_size=12)
    networks = small_network(member), small_network(member)
    full = train_module(networks[0], member, schedule, progress=False)
    less = train_module(networks[1], half, schedule, compute=Compute(bfloat16=True), progress=False)
    assert seen == [torch.float32]
    assert full.train_loss[0] != less.train_loss[0]
    np.testing.assert_allclose(less.train_loss, full.train_loss, rtol=0.03)
    assert {p.dtype for p in networks[1].parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"micro_batch": 0}, ValueError, "micro_batch must be an integer >= 1"),
        ({"device": "abacus"}, ValueError, "device must be one that torch can use; got 'abacus'"),
    ],
)
def test_invalid_compute_settings_raise(settings, error, message):
    with pytest.raises(error, match=message):
        Compute(**settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_raises_and_default_device_is_then_the_cpu():
    with pytest.raises(ValueError, match="got 'cuda': torch finds no GPU"):
        Compute(device="cuda")
    assert Compute(device=None).resolved_device == torch.device("cpu")


@pytest.mark.parametrize("factor", [30.0, 0.03])
def test_unscaled_labels_warn(factor):
    rows = tables()
    member = Member(Triplets(rows.x, rows.y * factor, rows.variance * factor**2))
    with pytest.warns(
        UserWarning,
        match=r"a variance of .*\. Scale labels and variances with biv.preprocessing.LabelS",
    ):
        train_module(network_of(member), member, Schedule(epochs=1), progress=False)


def test_bytes_must_have_the_shape_of_images():
    for shape in ((5, 8, 8), (5, 1, 8, 8, 2)):
        with pytest.raises((TypeError, ValueError), match="x must"):
            Triplets(torch.zeros(shape, dtype=torch.uint8), torch.zeros(5))
    turned = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)[..., ::-1]
    assert np.array_equal(Triplets(turned, np.zeros(2)).x, turned)


def test_running_statistics_are_averaged_with_the_parameters():
    """Test running statistics of batch normalisation over the steps that are averaged."""
    member = Member(faces())
    network = small_network(member)
    loop = Loop(network, member, Schedule(epochs=3, batch_size=4, averaging=0.0))
    seen = []
    for _ in range(9):
        loop._train(torch.arange(4))
        seen.append(network[1][1].running_mean.clone())
    with loop.average.in_place():
        torch.testing.assert_close(network[1][1].running_mean, torch.stack(seen).mean(0))
    assert torch.equal(network[1][1].running_mean, seen[-1])
    assert network[1][1].num_batches_tracked == 9


def test_a_module_may_have_extra_state_that_is_not_a_tensor(tmp_path):
    class Keeping(nn.Linear):
        def get_extra_state(self):
            return {"seen": 3}

        def set_extra_state(self, state):
            assert state == {"seen": 3}

    member = Member(tables())
    for _ in range(2):
        network = Keeping(4, 1).double()
        torch.manual_seed(0)
        network.reset_parameters()
        train_module(network, member, Schedule(epochs=1), checkpoint=tmp_path / "c", progress=False)


def test_a_stack_rejects_images():
    from biv.training import train_stack

    with pytest.raises(ValueError, match="got images. Train them with train_module"):
        train_stack(MLP(features=3), [Member(faces())], Schedule())


# Checkpoints.


class InterruptedTrainingError(Exception):
    pass


def interrupt_after(loop_class, monkeypatch, steps):
    train = loop_class._train

    def interrupted(self, rows):
        if self.step == steps:
            raise InterruptedTrainingError
        return train(self, rows)

    monkeypatch.setattr(loop_class, "_train", interrupted)


@pytest.mark.parametrize(
    ("schedule", "compute"),
    [
        (Schedule(epochs=4, batch_size=5, test_every=2), Compute()),
        (Schedule(epochs=4, batch_size=5, averaging=2.0), Compute()),
        (Schedule(epochs=4, batch_size=5, optimizer="sgd", momentum=0.9), Compute(micro_batch=2)),
        (Schedule(epochs=4, batch_size=5), Compute(bfloat16=True)),
    ],
)
@pytest.mark.parametrize("steps", [0, 4, 7])
def test_resumed_training_is_bit_identical_to_an_uninterrupted_one(
    tmp_path, monkeypatch, schedule, compute, steps
):
    member = Member(faces(), Triplets(faces(seed=1).x, faces(seed=1).y), loss=biv.BIVLoss())

    def dropping():
        torch.manual_seed(3)  # for dropout
        return nn.Sequential(nn.Dropout2d(0.2), small_network(member)[1])

    class Floats(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = dropping()

        def forward(self, images):
            return self.inner(images.float() / 128 - 1)

    settings = {"compute": compute, "progress": False}
    whole = Floats()
    expected = train_module(whole, member, schedule, **settings)
    with monkeypatch.context() as patch:
        interrupt_after(Loop, patch, steps)
        with pytest.raises(InterruptedTrainingError):
            train_module(Floats(), member, schedule, checkpoint=tmp_path / "c", **settings)
    torch.manual_seed(99)  # as in another process
    parts = Floats()
    torch.manual_seed(98)
    resumed = train_module(parts, member, schedule, checkpoint=tmp_path / "c", **settings)
    assert torch.equal(parameters(whole), parameters(parts))
    for name in ("train_loss", "effective_batch_size", "test_loss", "test_step"):
        assert np.array_equal(getattr(expected, name), getattr(resumed, name)), name


def test_a_finished_training_is_not_repeated(tmp_path, monkeypatch):
    member, schedule = Member(faces()), Schedule(epochs=2, batch_size=6)
    first, again = small_network(member), small_network(member)
    train_module(first, member, schedule, checkpoint=tmp_path / "c", progress=False)
    interrupt_after(Loop, monkeypatch, 4)
    train_module(again, member, schedule, checkpoint=tmp_path / "c", progress=False)
    assert torch.equal(parameters(first), parameters(again))


def test_a_shorter_training_can_be_extended(tmp_path):
    member, schedule = Member(faces()), Schedule(epochs=3, batch_size=6, test_every=2)
    once, twice = small_network(member), small_network(member)
    whole = train_module(once, member, schedule, progress=False)
    for epochs in (1, 3):
        twice = small_network(member)
        resumed = train_module(
            twice,
            member,
            replace(schedule, epochs=epochs),
            checkpoint=tmp_path / "c",
            progress=False,
        )
    assert torch.equal(parameters(once), parameters(twice))
    assert np.array_equal(whole.train_loss, resumed.train_loss)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"member": {"learning_rate": 0.1}}, "the learning rate of member 0"),
        ({"member": {"seed": 5}}, "the seeds of member 0"),
        ({"member": {"loss": biv.L2Loss()}}, "the loss of member 0"),
        ({"member": {"train": faces(seed=7)}}, "the training rows of member 0"),
        ({"member": {"rows": torch.arange(10)}}, "the training rows of member 0"),
        ({"schedule": {"batch_size": 4}}, "the schedule"),
        ({"compute": {"bfloat16": True}}, "the precision"),
    ],
)
def test_a_checkpoint_of_another_training_is_an_error(tmp_path, change, difference):
    member, schedule, compute = Member(faces()), Schedule(epochs=1, batch_size=6), Compute()
    settings = {"checkpoint": tmp_path / "c", "progress": False}
    train_module(small_network(member), member, schedule, compute=compute, **settings)
    before = (tmp_path / "c").read_bytes()
    member = replace(member, **change.get("member", {}))
    schedule = replace(schedule, **change.get("schedule", {}))
    compute = replace(compute, **change.get("compute", {}))
    with pytest.raises(ValueError, match=f"differs in {difference}. Move the file away"):
        train_module(small_network(member), member, schedule, compute=compute, **settings)
    assert (tmp_path / "c").read_bytes() == before


def test_state_dict_within_an_epoch_raises():
    member = Member(faces())
    loop = Loop(small_network(member), member, Schedule(epochs=1, batch_size=6))
    loop._train(torch.arange(6))
    with pytest.raises(
        ValueError, match="at the end of an epoch, after a multiple of 2 steps; got 1 steps"
    ):
        loop.state_dict()


@pytest.mark.parametrize(
    ("values", "finite"),
    [([1.0, 2.0], True), ([3e38, 3e38], True), ([1.0, np.nan], False), ([np.inf, -np.inf], False)],
)
def test_all_finite_accepts_large_values(values, finite):
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.data = torch.tensor([values])
    assert all_finite(layer, torch.optim.SGD(layer.parameters())) == finite


def test_a_diverged_training_stays_diverged_when_resumed(tmp_path):
    member = Member(faces(), learning_rate=1e30)
    settings = {"checkpoint": tmp_path / "c", "progress": False}
    schedule = Schedule(epochs=3, batch_size=6)
    with pytest.warns(
        UserWarning, match=r"diverged at step \d: .*Choose a learning_rate below 1e\+30"
    ):
        first = train_module(small_network(member), member, schedule, **settings)
    with pytest.warns(UserWarning, match="diverged"):
        again = train_module(small_network(member), member, schedule, **settings)
    assert first.diverged_at == again.diverged_at
    assert first.diverged_at is not None
    assert np.array_equal(first.train_loss, again.train_loss, equal_nan=True)
    assert load_checkpoint(tmp_path / "c")["diverged_at"] == first.diverged_at


def test_checkpoint_replaces_parameters_and_micro_batches_may_change(tmp_path, monkeypatch):
    """A network without a seed can be resumed, and so can one that ran out of memory."""
    member, schedule = Member(faces()), Schedule(epochs=3, batch_size=6)
    settings = {"checkpoint": tmp_path / "c", "progress": False}
    with monkeypatch.context() as patch:
        interrupt_after(Loop, patch, 4)
        with pytest.raises(InterruptedTrainingError):
            train_module(small_network(member), member, schedule, **settings)
    other = small_network(replace(member, seed=77))
    train_module(other, member, schedule, **settings)
    whole = small_network(member)
    train_module(whole, member, schedule, progress=False)
    assert torch.equal(parameters(other), parameters(whole))
    longer = replace(schedule, epochs=4)
    train_module(other, member, longer, compute=Compute(micro_batch=3), **settings)


@pytest.mark.parametrize(("rows", "micro"), [(9, None), (9, 8), (8, 3), (7, 3)])
def test_batch_statistics_are_never_of_a_single_row(rows, micro):
    member = Member(faces(rows=rows))
    network = nn.Sequential(
        Pixels(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(3), nn.Linear(3, 1)
    )
    schedule = Schedule(epochs=1, batch_size=8)
    compute = Compute(micro_batch=micro)
    assert (
        len(train_module(network, member, schedule, compute=compute, progress=False).train_loss)
        == 1
    )
    plain = nn.Sequential(Pixels(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1))
    steps = len(train_module(plain, member, schedule, compute=compute, progress=False).train_loss)
    assert steps == -(-rows // 8)  # without batch normalisation, a single row is trained on


@pytest.mark.slow
def test_resnet_resumes_to_the_bit(tmp_path, monkeypatch):
    member = Member(faces(rows=8), Triplets(faces(seed=1).x, faces(seed=1).y))
    schedule = Schedule(epochs=2, batch_size=4, test_every=2)
    networks = [ResNet18()(member.generators()[0]) for _ in range(3)]
    train_module(networks[0], member, schedule, progress=False)
    with monkeypatch.context() as patch:
        interrupt_after(Loop, patch, 3)
        with pytest.raises(InterruptedTrainingError):
            train_module(networks[1], member, schedule, checkpoint=tmp_path / "c", progress=False)
    train_module(networks[2], member, schedule, checkpoint=tmp_path / "c", progress=False)
    assert torch.equal(parameters(networks[0]), parameters(networks[2]))
