"""Rows and members of small training runs for the tests of models and training."""

import numpy as np
import torch

import biv
from biv.epsilon import MinimumBatchSize
from biv.training import Member, Triplets

FEATURES = 7
LOSSES = {
    "biv": biv.BIVLoss(),
    "l2": biv.L2Loss(),
    "iv": biv.IVLoss(),
    "cutoff": biv.CutoffLoss(0.3),
    "biv huber, no epsilon": biv.BIVLoss(0.0, base="huber"),
    "biv, minimum batch size": biv.BIVLoss(MinimumBatchSize(fraction=0.5)),
    "iv with epsilon": biv.IVLoss(0.1),
}


def truth(x, outputs=1):
    return torch.stack([x[:, k] + (2 * x[:, k + 1]).sin() for k in range(outputs)], dim=1)


def triplets(seed, *, rows=300, outputs=1, dtype=torch.float32, x=None):
    generator = torch.Generator().manual_seed(seed)
    if x is None:
        x = torch.randn(rows, FEATURES, generator=generator, dtype=dtype)
    variance = 0.01 + torch.rand(len(x), outputs, generator=generator, dtype=dtype)
    noise = torch.randn(len(x), outputs, generator=generator, dtype=dtype)
    return Triplets(x, truth(x, outputs) + variance.sqrt() * noise, variance)


def clean_rows(seed, *, rows=70, outputs=1, dtype=torch.float32):
    x = triplets(seed, rows=rows, dtype=dtype).x
    return Triplets(x, truth(x, outputs))


def seven_members(dtype=torch.float32):
    """Return members with different settings; three share features, and some share test rows."""
    shared, tests = triplets(100, dtype=dtype).x, clean_rows(200, dtype=dtype)
    return [
        Member(
            triplets(k, dtype=dtype, x=shared if k in (1, 2, 5) else None),
            tests if k in (0, 1, 4) else clean_rows(300 + k, dtype=dtype),
            loss,
            learning_rate=1e-3 * (1 + k % 3),
            seed=k,
            order_seed=k // 2,
            name=name,
        )
        for k, (name, loss) in enumerate(LOSSES.items())
    ]


CURVES = ("train_loss", "effective_batch_size", "test_loss", "test_step")


def assert_same_bits(one, other):
    """Assert that two trained members are bit-identical."""
    for name in CURVES:
        a, b = getattr(one.history, name), getattr(other.history, name)
        assert np.array_equal(a, b, equal_nan=True), name
    assert one.history.diverged_at == other.history.diverged_at
    pairs = zip(one.module.state_dict().items(), other.module.state_dict().values(), strict=True)
    for (name, a), b in pairs:
        assert torch.equal(a, b), name
