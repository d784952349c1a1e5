"""A plain PyTorch loop, with BIVLoss in the place of MSELoss.

    python examples/pytorch_loop.py            five seeds, under a minute on one core
    python examples/pytorch_loop.py --small    a quick look, some seconds

Bicycle counts, shipped with the package, get noise whose variance differs from label to label and
is known: σ² ~ Gamma(α = 0.5), on average 0.6 of the variance of the labels. Two networks learn from
the same noisy labels; all that differs is the loss. How many epochs are enough is decided on
held-out labels that are noisy too, as a user without clean labels would. The test rows are scored
twice: on their clean labels, and on their noisy ones with the noise taken out.

What comes out (the last digits differ between machines):

    Test error, in units of the label variance: mean ± standard deviation of the seeds
                to clean labels    as noisy ones tell
    MSELoss       0.120 ± 0.011         0.120 ± 0.016
    BIVLoss       0.086 ± 0.006         0.090 ± 0.012
    BIVLoss / MSELoss, seed by seed: 0.72 ± 0.04, lower with 5 of 5 seeds
"""

import argparse
import copy

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import biv

MSE = torch.nn.MSELoss()
LOSSES = {
    "MSELoss": lambda pred, y, _: MSE(pred, y),  # has no use for error bars
    "BIVLoss": biv.BIVLoss(),  # epsilon=0.05, which suits labels of unit variance
}


def noisy_bike(seed, train, held_out):
    """Bicycle counts with noise of known variance: rows to learn from, to choose on, to test on."""
    data, rng = biv.datasets.load_bike_2011(), np.random.default_rng(seed)
    mean_variance = 0.6 * data.y.var()  # noise on a label is 0.6 of what labels vary by, on average
    variance = biv.noise.Gamma(alpha=0.5, mean=mean_variance).sample(len(data), rng)
    noisy = biv.noise.corrupt(data.y, variance, rng)
    order = rng.permutation(len(data))
    rows = np.split(order[: train + 2 * held_out], [train, train + held_out])

    # Statistics of the training rows alone; those of the labels are not inflated by their noise.
    features = biv.preprocessing.FeatureScaler.fit(data.x[rows[0]])
    labels = biv.preprocessing.LabelScaler.fit(noisy[rows[0]], variance[rows[0]])
    columns = (
        features(data.x),
        labels.label(noisy)[:, None],  # (N, 1), as what the network gives
        labels.variance(variance)[:, None],  # divided by the square of what labels are divided by
        labels.label(data.y)[:, None],  # the truth, which users do not have
    )
    return [[torch.tensor(c[part], dtype=torch.float32) for c in columns] for part in rows]


def train(loss_function, train_rows, valid_rows, epochs, seed):
    """The loop. The epoch is chosen on held-out labels, noisy as they are."""
    x_valid, y_valid, variance_valid, _ = valid_rows
    model = biv.models.MLP(features=x_valid.shape[1])(torch.Generator().manual_seed(seed))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(
        TensorDataset(*train_rows[:3]),
        batch_size=256,
        shuffle=True,
        generator=torch.Generator().manual_seed(seed),
    )
    best, lowest = None, float("inf")
    for _ in range(epochs):
        model.train()
        for x, y, variance in loader:
            optimizer.zero_grad()
            loss_function(model(x), y, variance).backward()
            optimizer.step()
        score = biv.metrics.noise_corrected_mse(predict(model, x_valid), y_valid, variance_valid)
        if score.value < lowest:
            best, lowest = copy.deepcopy(model), score.value
    return best


@torch.no_grad()
def predict(model, x):
    """In evaluation mode, for networks that have one."""
    return model.eval()(x)


def main(arguments=None):
    """Train with both losses on the same noisy labels, for several seeds; print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="how many (default: 5, or 2 if small)")
    parser.add_argument("--small", action="store_true", help="less of everything, for a quick look")
    options = parser.parse_args(arguments)
    seeds = options.seeds or (2 if options.small else 5)
    rows, epochs = ((4000, 1000), 25) if options.small else ((5500, 1500), 60)

    clean = {name: [] for name in LOSSES}
    estimated = {name: [] for name in LOSSES}
    for seed in range(seeds):
        train_rows, valid_rows, (x, y, variance, truth) = noisy_bike(seed, *rows)
        for name, loss_function in LOSSES.items():
            pred = predict(train(loss_function, train_rows, valid_rows, epochs, seed), x)
            clean[name].append(float(MSE(pred, truth)))
            estimated[name].append(biv.metrics.noise_corrected_mse(pred, y, variance).value)

    print("Test error, in units of the label variance: mean ± standard deviation of the seeds")
    print(f"{'':9}{'to clean labels':>18}{'as noisy ones tell':>22}")
    for name in LOSSES:
        cells = [f"{np.mean(e[name]):.3f} ± {np.std(e[name]):.3f}" for e in (clean, estimated)]
        print(f"{name:9}{cells[0]:>18}{cells[1]:>22}")
    ratio = np.divide(clean["BIVLoss"], clean["MSELoss"])
    print(
        f"BIVLoss / MSELoss, seed by seed: {ratio.mean():.2f} ± {ratio.std():.2f}, "
        f"lower with {np.sum(ratio < 1)} of {seeds} seeds"
    )
    return {"clean": clean, "estimated": estimated}


if __name__ == "__main__":
    torch.set_num_threads(1)  # a small network gains nothing from more
    main()
