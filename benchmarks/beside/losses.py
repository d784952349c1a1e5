"""The same network and loop with different losses."""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F

import biv
from beside.data import EPSILON, ScaledLabels, draw, scores
from beside.formulas import BATCH, our_biv

WIDTHS, EPOCHS, PATIENCE, RATE = (100, 50, 20, 10), 150, 30, 1e-3
STARTS = 4  # largest number of times that a network is trained


def predicted_variance(out):
    """Return s²(x), whose logarithm is the second output of the network."""
    return out[:, 1:].exp()


LOSSES = {  # functions of the network's outputs, the labels and their variances
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
    """Network at its best epoch, and whether its predictions vary between rows."""

    network: torch.nn.Module
    epoch: int
    alive: bool


def train(name, rows, labels, seed, *, epochs, start):
    """Return the network of the epoch with the lowest error on held-out noisy labels.

    With one seed, all losses have the same held-out rows, the same batches and the same initial
    parameters (except those of a second output).
    """
    loss, outputs = LOSSES[name], 2 if "s²(x)" in name else 1
    generator = torch.Generator().manual_seed(seed + 10_000 * start)
    network = biv.models.MLP(rows.x.shape[1], WIDTHS, outputs)(generator)
    order = torch.Generator().manual_seed(1_000 + seed)
    x = torch.as_tensor(rows.x, dtype=torch.float32)
    y, v = (torch.as_tensor(c, dtype=torch.float32)[:, None] for c in (labels.y, labels.variance))
    sizes = [len(x) - len(x) // 5, len(x) // 5]
    kept, held = torch.randperm(len(x), generator=order).split(sizes)
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
    """Return the results of every loss on one draw."""
    drawn, epochs = draw(name, seed), 2 if quick else EPOCHS
    labels, results = ScaledLabels.fit(drawn.train), {}
    for loss in LOSSES:
        # All of the last ten units may become inactive, which makes the output constant.
        for start in range(STARTS):
            trained = train(loss, drawn.train, labels, seed, epochs=epochs, start=start)
            if trained.alive:
                break
        with torch.no_grad():
            out = trained.network(torch.as_tensor(drawn.test.x, dtype=torch.float32))
        std = predicted_variance(out).sqrt()[:, 0] if out.shape[1] > 1 else None
        predicted = labels.raw(out[:, 0], std)
        results[loss] = scores(drawn.test, drawn.scale, *predicted)
        results[loss] |= {"epoch": trained.epoch, "starts": start + 1}
    return results
