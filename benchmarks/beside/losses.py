"""One network, one loop: only the loss differs."""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F

import biv
from beside.data import EPSILON, Unit, draw, judged
from beside.formulas import BATCH, our_biv

WIDTHS, EPOCHS, PATIENCE, RATE = (100, 50, 20, 10), 150, 30, 1e-3
STARTS = 4  # of a network, at most


def predicted_variance(out):
    """s²(x), which the network gives as a logarithm."""
    return out[:, 1:].exp()


LOSSES = {  # of what the network puts out, the labels and their variances
    "L2": lambda out, y, v: biv.l2_loss(out, y, v),
    "IV: 1/σ²": lambda out, y, v: biv.iv_loss(out, y, v),
    "GaussianNLLLoss, var = σ²": lambda out, y, v: F.gaussian_nll_loss(out, y, v),
    "GaussianNLLLoss, var = s²(x), error bars unused": lambda out, y, _: F.gaussian_nll_loss(
        out[:, :1], y, predicted_variance(out)
    ),
    "GaussianNLLLoss, var = σ² + s²(x)": lambda out, y, v: F.gaussian_nll_loss(
        out[:, :1], y, v + predicted_variance(out)
    ),
    "**BIV**, which F.mse_loss(weight=1/(σ²+ε)) is too": our_biv,
}


class Trained(NamedTuple):
    """A network, the epoch it is of, and whether it predicts more than one number."""

    network: torch.nn.Module
    epoch: int
    alive: bool


def train(name, rows, unit, seed, *, epochs, start):
    """The network of the epoch that predicts held-out noisy labels best, by the same rule for all.

    Under one seed, all losses have the same rows held out, the same first parameters (but for the
    second output, where there is one) and the same batches.
    """
    loss, outputs = LOSSES[name], 2 if "s²(x)" in name else 1
    generator = torch.Generator().manual_seed(seed + 10_000 * start)
    network = biv.models.MLP(rows.x.shape[1], WIDTHS, outputs)(generator)
    order = torch.Generator().manual_seed(1_000 + seed)
    x = torch.as_tensor(rows.x, dtype=torch.float32)
    y, v = (torch.as_tensor(c, dtype=torch.float32)[:, None] for c in (unit.y, unit.variance))
    kept, held = torch.randperm(len(x), generator=order).split([len(x) - len(x) // 5, len(x) // 5])
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    best, lowest = Trained(copy.deepcopy(network), 0, False), float("inf")
    for epoch in range(1, epochs + 1):
        for batch in kept[torch.randperm(len(kept), generator=order)].split(BATCH):
            optimizer.zero_grad()
            loss(network(x[batch]), y[batch], v[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            out = network(x[held])[:, :1]
        if not out.isfinite().all():
            break
        score = biv.metrics.noise_corrected_mse(out, y[held], v[held], epsilon=EPSILON).value
        if score < lowest:
            best, lowest = Trained(copy.deepcopy(network), epoch, bool(out.std() > 1e-3)), score
        if epoch - best.epoch >= PATIENCE:
            break
    return best


def networks(name, seed, quick):
    """Every loss on one draw."""
    drawn, epochs = draw(name, seed), 2 if quick else EPOCHS
    unit, found = Unit.of(drawn.train), {}
    for loss in LOSSES:
        for start in range(STARTS):  # ten units are few: all may die, and the output is constant
            trained = train(loss, drawn.train, unit, seed, epochs=epochs, start=start)
            if trained.alive:
                break
        with torch.no_grad():
            out = trained.network(torch.as_tensor(drawn.test.x, dtype=torch.float32))
        std = predicted_variance(out).sqrt()[:, 0] if out.shape[1] > 1 else None
        predicted = unit.raw(out[:, 0], std)
        found[loss] = judged(drawn.test, drawn.scale, *predicted)
        found[loss] |= {"epoch": trained.epoch, "starts": start + 1}
    return found
