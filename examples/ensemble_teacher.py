"""An ensemble of teachers labels rows without labels, and students learn from its predictions.

    python examples/ensemble_teacher.py            ten seeds, half a minute on one core
    python examples/ensemble_teacher.py --small    a quick look, some seconds

Only 300 of the included bicycle counts are used as labels. Eight networks, the teachers, learn from
resamples of these and predict 5,500 other rows. `biv.labels.ensemble` computes labels and variances
from their predictions. Students learn from both sets, with L2 and with BIV.

Expect a small gain. Teachers that agree may be wrong together, and neighbouring rows have the same
error, which no weighting averages out. In this example the variances are too small by a factor of
2.6, and the gain is 3%, though with every seed.

Output (the last digits differ between machines):

    300 labels, 5500 rows labelled by 8 teachers
    (label − truth)²/σ² is 2.6 on average; 1 is right
    Test error, in units of the label variance (mean ± std of the seeds):
      mean of the teachers  0.346 ± 0.051
      student, L2           0.343 ± 0.052
      student, BIV          0.334 ± 0.050
    BIV / L2 per seed: 0.973 ± 0.010, lower with 10 of 10 seeds
"""

import argparse

import numpy as np
import torch

import biv
from biv.models import MLP
from biv.training import Member, Schedule, Triplets, train_stack

TEACHERS, STUDENTS = 8, 4  # number of teachers per seed, and of students per loss and seed


@torch.no_grad()
def predictions(trained, x):
    """Return the predictions of each network for each row, (networks, rows)."""
    rows = torch.tensor(x, dtype=torch.float32)
    return np.stack([network(rows)[:, 0].numpy() for network, _ in trained])


def mse(pred, truth):
    """Return the mean squared error over the last axis."""
    return np.mean((pred - truth) ** 2, axis=-1)


def teach(x, y, rng):
    """Train one network per resample of the few labelled rows."""
    rows = Triplets(x, y)
    members = [
        Member(rows, loss=biv.L2Loss(), seed=int(seed), rows=rng.integers(len(y), size=len(y)))
        for seed in rng.integers(2**31, size=TEACHERS)
    ]
    return train_stack(MLP(x.shape[1]), members, Schedule(epochs=100, batch_size=32))


def learn(x, y, variance, seeds, batch_size):
    """Train students with L2, and then as many with BIV and the same seeds."""
    rows = Triplets(x, y, variance)
    members = [
        Member(rows, loss=loss, seed=int(seed))
        for loss in (
            biv.L2Loss(),
            biv.BIVLoss(),
        )  # labels have unit variance, so ε = 0.05 is suitable
        for seed in seeds
    ]
    return train_stack(MLP(x.shape[1]), members, Schedule(epochs=40, batch_size=batch_size))


def main(arguments=None):
    """Train teachers on few labels and students on many rows, and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seeds", type=int, help="number of seeds (default: 10, or 2 with --small)"
    )
    parser.add_argument(
        "--small", action="store_true", help="use less data and fewer epochs, for a quick look"
    )
    options = parser.parse_args(arguments)
    seeds = options.seeds or (2 if options.small else 10)
    labelled, unlabelled = 300, 2000 if options.small else 5500

    data = biv.datasets.load_bike_2011()
    errors, calibration = {"mean of the teachers": [], "student, L2": [], "student, BIV": []}, []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        few, many, test = np.split(rng.permutation(len(data)), [labelled, labelled + unlabelled])
        # The scales come from the few labelled rows, the only known labels.
        x = biv.preprocessing.FeatureScaler.fit(data.x[few])(data.x)
        truth = biv.preprocessing.LabelScaler.fit(data.y[few]).label(data.y)

        teachers = teach(x[few], truth[few], rng)
        y, variance = biv.labels.ensemble(
            predictions(teachers, x[many])
        )  # requires at least four teachers
        calibration.append(np.mean((y - truth[many]) ** 2 / variance))

        students = learn(
            np.concatenate([x[few], x[many]]),
            np.concatenate([truth[few], y]),
            np.concatenate([np.zeros(labelled), variance]),  # 0: trusted labels
            rng.integers(2**31, size=STUDENTS),
            batch_size=96 if options.small else 256,
        )
        teacher_error = mse(predictions(teachers, x[test]).mean(axis=0), truth[test])
        l2, weighted = mse(predictions(students, x[test]), truth[test]).reshape(2, STUDENTS)
        for name, error in zip(errors, (teacher_error, l2, weighted), strict=True):
            errors[name].append(error.mean())

    print(f"{labelled} labels, {unlabelled} rows labelled by {TEACHERS} teachers")
    print(f"(label − truth)²/σ² is {np.mean(calibration):.1f} on average; 1 is right")
    print("Test error, in units of the label variance (mean ± std of the seeds):")
    for name, values in errors.items():
        print(f"  {name:22}{np.mean(values):.3f} ± {np.std(values):.3f}")
    teacher_errors, unweighted, weighted = errors.values()
    ratio = np.divide(weighted, unweighted)
    print(
        f"BIV / L2 per seed: {ratio.mean():.3f} ± {ratio.std():.3f}, "
        f"lower with {np.sum(ratio < 1)} of {seeds} seeds"
    )
    return {
        "teachers": teacher_errors,
        "l2": unweighted,
        "biv": weighted,
        "calibration": calibration,
    }


if __name__ == "__main__":
    main()
