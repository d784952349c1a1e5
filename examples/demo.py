"""Five ways to train on noisy labels, compared on the shipped bike data.

The labels of Bike Sharing (2011) get artificial noise whose variance differs from label to label
and is known, as error bars are: σ² ~ Gamma(α, mean 0.608 × label variance), ỹ ~ N(y, σ²). A small
network is then trained with each loss, and scored on clean labels that it has not seen.
"""

import argparse
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import biv

TRAIN_ROWS, TEST_ROWS = 5_500, 2_200
NOISE_TO_LABEL_VARIANCE = 0.608  # the paper's ratio on the whole data set
BATCH_SIZE, LEARNING_RATE = 256, 1e-3

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
EXAMPLES = """examples:
  .venv/bin/python examples/demo.py                         five losses, three seeds
  .venv/bin/python examples/demo.py --alpha 0.25 --seeds 5  more labels almost clean, others noisier
  .venv/bin/python examples/demo.py --epochs 10 --seeds 1   a quick look
"""


def network(features: int) -> nn.Module:
    """The paper's multi-layer perceptron."""
    widths = [features, 100, 50, 20, 10]
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1), nn.Flatten(0))


def train(
    loss_function: Loss,
    train_set: tuple[Tensor, Tensor, Tensor],
    test_set: tuple[Tensor, Tensor],
    *,
    epochs: int,
    seed: int,
) -> list[float]:
    """The usual loop; returns the test error after every epoch."""
    x, y, variance = train_set
    x_test, y_test = test_set
    order = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = network(x.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    errors = []
    for _ in range(epochs):
        for rows in torch.randperm(len(y), generator=order).split(BATCH_SIZE):
            loss = loss_function(model(x[rows]), y[rows], variance[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            errors.append(biv.l2_loss(model(x_test), y_test).item())
    return errors


def noisy_split(
    data: biv.datasets.Dataset, alpha: float, seed: int
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, tuple[Tensor, Tensor]]:
    """Noisy training labels with their variances, the clean ones, and a clean test set.

    Everything is standardised, as in the paper; variances are divided by the label variance.
    """
    rng = np.random.default_rng(seed)
    rows = biv.datasets.split_rows(len(data), train=TRAIN_ROWS, test=TEST_ROWS, generator=rng)
    scaler = biv.datasets.LabelScaler.fit(data.y)
    noise = biv.noise.Gamma(alpha, mean=scaler.variance_raw(NOISE_TO_LABEL_VARIANCE))
    variance = noise.sample(TRAIN_ROWS, rng)
    noisy = biv.noise.corrupt(data.y[rows.train], variance, rng)

    def tensor(values: np.ndarray) -> Tensor:
        return torch.tensor(values, dtype=torch.float32)

    x = tensor(biv.datasets.FeatureScaler.fit(data.x)(data.x))
    y = tensor(scaler.label(data.y))
    train_set = (x[rows.train], tensor(scaler.label(noisy)), tensor(scaler.variance(variance)))
    return train_set, y[rows.train], (x[rows.test], y[rows.test])


def compare(alpha: float, seeds: int, epochs: int) -> dict[str, np.ndarray]:
    """Test errors of every method, (seeds, epochs) each."""
    data = biv.datasets.load_bike_2011()
    methods: dict[str, Loss] = {
        "L2": biv.L2Loss(),
        "IV": biv.IVLoss(),
        "Cutoff C=μ": biv.CutoffLoss(threshold=NOISE_TO_LABEL_VARIANCE),
        "BIV": biv.BIVLoss(epsilon=0.05),
        "GT (clean labels)": biv.L2Loss(),
    }
    errors: dict[str, list[list[float]]] = {name: [] for name in methods}
    for seed in range(seeds):
        noisy_set, clean_labels, test_set = noisy_split(data, alpha, seed)
        for done, (name, loss) in enumerate(methods.items(), start=1 + seed * len(methods)):
            x, _, variance = noisy_set
            train_set = (x, clean_labels, variance) if name.startswith("GT") else noisy_set
            errors[name].append(train(loss, train_set, test_set, epochs=epochs, seed=seed))
            progress(
                done, seeds * len(methods), f"seed {seed}, {name}: {min(errors[name][-1]):.3f}"
            )
    return {name: np.array(curves) for name, curves in errors.items()}


def progress(done: int, total: int, message: str) -> None:
    """A line that rewrites itself, where someone is watching."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r\033[K[{done}/{total}] {message}", end=end, file=sys.stderr, flush=True)


def table(errors: dict[str, np.ndarray]) -> str:
    """The comparison as Markdown, one row a method."""
    lowest = {name: curves.min(axis=1) for name, curves in errors.items()}
    l2, gt = lowest["L2"].mean(), lowest["GT (clean labels)"].mean()
    best = min((n for n in lowest if not n.startswith("GT")), key=lambda n: lowest[n].mean())
    lines = [
        "| method            | lowest test MSE | after the last epoch | L2–GT gap closed |",
        "|-------------------|-----------------|----------------------|------------------|",
    ]
    for name, values in lowest.items():
        spread = f"± {values.std(ddof=1):.3f}" if len(values) > 1 else " " * 7
        mark = "*" if name == best else " "
        closed = (l2 - values.mean()) / (l2 - gt)
        lines.append(
            f"| {name:17} | {values.mean():.3f} {spread} {mark} "
            f"| {errors[name][:, -1].mean():20.3f} | {closed:16.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Train, print the table and say where it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--alpha", type=float, default=1.0, help="shape of the noise (default: 1)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method (default: 3)")
    parser.add_argument("--epochs", type=int, default=60, help="passes over the data (default: 60)")
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo"), help="folder (default: build/demo)"
    )
    options = parser.parse_args()
    if options.seeds < 1 or options.epochs < 1:
        parser.error("--seeds and --epochs must be at least 1")
    if not 0 < options.alpha < float("inf"):
        parser.error(f"--alpha must be above 0; found {options.alpha:g}")
    torch.set_num_threads(1)  # faster than two on matrices this small

    title = (
        f"Bike Sharing 2011, {TRAIN_ROWS} noisy training labels (Gamma, α = {options.alpha:g}), "
        f"seeds: {options.seeds}, epochs: {options.epochs}.\n"
        "Test MSE on clean labels of unit variance; * is the lowest of those trained on noisy ones."
    )
    print(title, flush=True)
    text = table(compare(options.alpha, options.seeds, options.epochs))
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "table.md"
    path.write_text(f"{title}\n\n{text}\n", encoding="utf-8")
    print(f"\n{text}\n\nWritten to {path}")


if __name__ == "__main__":
    main()
