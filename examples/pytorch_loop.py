"""A plain PyTorch loop, with BIVLoss instead of MSELoss.

    python examples/pytorch_loop.py            five seeds, under a minute on one core
    python examples/pytorch_loop.py --small    a quick look, some seconds

The bicycle counts that the package includes get noise of known variance, which differs between
labels: σ² ~ Gamma(α = 0.5), on average 0.6 times the variance of the labels. Two networks learn
from the same noisy labels with different losses. The epoch is chosen on held-out labels that are
noisy too, because users have no clean labels. The test rows are scored twice: on their clean
labels, and by the noise-corrected error on their noisy labels.

Output (the last digits differ between machines):

    Test error, in units of the label variance: mean ± standard deviation of the seeds
                on clean labels     from noisy labels
    MSELoss       0.120 ± 0.011         0.120 ± 0.016
    BIVLoss       0.086 ± 0.006         0.090 ± 0.012
    BIVLoss / MSELoss per seed: 0.72 ± 0.04, lower with 5 of 5 seeds
"""

import argparse
import copy

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import biv

MSE = torch.nn.MSELoss()
LOSSES = {
    "MSELoss": lambda pred, y, _: MSE(pred, y),  # ignores the error bars
    "BIVLoss": biv.BIVLoss(),  # epsilon=0.05, suitable for labels of unit variance
}


def noisy_bike(seed, train, held_out):
    """Return training, validation and test rows of bicycle counts with noise of known variance."""
    data, rng = biv.datasets.load_bike_2011(), np.random.default_rng(seed)
    mean_variance = 0.6 * data.y.var()  # mean variance of the noise: 0.6 times that of the labels
    variance = biv.noise.Gamma(alpha=0.5, mean=mean_variance).sample(len(data), rng)
    noisy = biv.noise.corrupt(data.y, variance, rng)
    order = rng.permutation(len(data))
    rows = np.split(order[: train + 2 * held_out], [train, train + held_out])

    # Fit on the training rows only. With the variances, noise does not inflate the label scale.
    features = biv.preprocessing.FeatureScaler.fit(data.x[rows[0]])
    labels = biv.preprocessing.LabelScaler.fit(noisy[rows[0]], variance[rows[0]])
    columns = (
        features(data.x),
        labels.label(noisy)[:, None],  # (N, 1), the shape of the predictions
        labels.variance(variance)[:, None],  # divided by the square of the label scale
        labels.label(data.y)[:, None],  # the true labels, which users do not have
    )
    return [[torch.tensor(c[part], dtype=torch.float32) for c in columns] for part in rows]


def train(loss_function, train_rows, valid_rows, epochs, seed):
    """Train a network and return it at the epoch with the lowest error on noisy held-out labels."""
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
    """Return predictions in evaluation mode, which matters for dropout and batch norm."""
    return model.eval()(x)


def main(arguments=None):
    """Train with both losses on the same noisy labels for several seeds, and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="number of seeds (default: 5, or 2 with --small)")
    parser.add_argument(
        "--small", action="store_true", help="use less data and fewer epochs, for a quick look"
    )
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
    print(f"{'':9}{'on clean labels':>18}{'from noisy labels':>22}")
    for name in LOSSES:
        cells = [f"{np.mean(e[name]):.3f} ± {np.std(e[name]):.3f}" for e in (clean, estimated)]
        print(f"{name:9}{cells[0]:>18}{cells[1]:>22}")
    ratio = np.divide(clean["BIVLoss"], clean["MSELoss"])
    print(
        f"BIVLoss / MSELoss per seed: {ratio.mean():.2f} ± {ratio.std():.2f}, "
        f"lower with {np.sum(ratio < 1)} of {seeds} seeds"
    )
    return {"clean": clean, "estimated": estimated}


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads do not speed up a small network
    main()
