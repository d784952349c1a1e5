"""Crowd ratings as labels with error bars, for items with few and with many ratings.

    python examples/crowd_ratings.py            five seeds, half a minute on one core
    python examples/crowd_ratings.py --small    a quick look, some seconds

A simulated crowd rates items. Some raters are always strict, others lenient. Most items have one or
two ratings, a few have dozens. `biv.labels.ratings` turns the ratings into one label and one
variance per item. `BIVRegressor` (which requires scikit-learn) then learns the quality of items
from their features, to predict the quality of items that nobody has rated. The script compares
training with and without the error bars.

Output (the last digits differ between machines):

    2000 items, 5.1 ratings per item on average
    (label − truth)²/σ² is 1.02 on average; 1 is right
    Error of the predicted quality of new items (root mean square ± std of the seeds):
      mean ratings, unweighted     0.313 ± 0.019
      biases removed, unweighted   0.287 ± 0.017
      biases removed, error bars   0.224 ± 0.021
    With error bars / unweighted, per seed: 0.78 ± 0.05, lower with 5 of 5 seeds
"""

import argparse

import numpy as np

import biv


def quality(x):
    """Return the true quality of items from their features."""
    return 5 + np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3]


def simulated_crowd(items, raters, rng):
    """Return the features of the items, and the item, rater and value of each rating."""
    x = rng.normal(size=(items, 5))
    # Most items get one or two ratings, a few get dozens.
    counts = np.minimum(rng.zipf(1.7, size=items), raters // 2)
    bias = rng.normal(0, 0.7, size=raters)  # strict or lenient raters
    bias -= bias.mean()  # the raters are right on average
    item = np.repeat(np.arange(items), counts)
    rater = np.concatenate([rng.choice(raters, size=n, replace=False) for n in counts])
    rating = quality(x)[item] + bias[rater] + rng.normal(0, 1.5, size=len(item))
    return x, item, rater, rating


def main(arguments=None):
    """Learn the quality of items from their features in three ways, and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="number of seeds (default: 5, or 2 with --small)")
    parser.add_argument(
        "--small", action="store_true", help="use less data and fewer epochs, for a quick look"
    )
    options = parser.parse_args(arguments)
    seeds = options.seeds or (2 if options.small else 5)
    items, raters = (1000, 40) if options.small else (2000, 60)
    networks = {"members": 4, "folds": 4} if options.small else {}

    errors, calibration = {}, []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        x, item, rater, rating = simulated_crowd(items, raters, rng)
        means = biv.labels.ratings(item, rating)  # the mean rating of each item, and its variance
        corrected = biv.labels.ratings(item, rating, rater)  # the same, with raters' biases removed
        truth = quality(x[corrected.items])  # one label per item, in the order of .items
        calibration.append(np.mean((corrected.y - truth) ** 2 / corrected.variance))

        x_new = rng.normal(size=(5000, 5))  # items that nobody has rated yet
        for name, labels, loss in (
            ("mean ratings, unweighted", means, "l2"),
            ("biases removed, unweighted", corrected, "l2"),
            ("biases removed, error bars", corrected, "biv"),
        ):
            model = biv.BIVRegressor(loss=loss, random_state=seed, **networks)
            model.fit(x[labels.items], labels.y, y_var=labels.variance)
            error = np.sqrt(np.mean((model.predict(x_new) - quality(x_new)) ** 2))
            errors.setdefault(name, []).append(error)

    print(f"{items} items, {len(item) / items:.1f} ratings per item on average")
    print(f"(label − truth)²/σ² is {np.mean(calibration):.2f} on average; 1 is right")
    print("Error of the predicted quality of new items (root mean square ± std of the seeds):")
    for name, values in errors.items():
        print(f"  {name:29}{np.mean(values):.3f} ± {np.std(values):.3f}")
    unweighted, weighted = list(errors.values())[1:]
    ratio = np.divide(weighted, unweighted)
    print(
        f"With error bars / unweighted, per seed: {ratio.mean():.2f} ± {ratio.std():.2f}, "
        f"lower with {np.sum(ratio < 1)} of {seeds} seeds"
    )
    return {"l2": unweighted, "biv": weighted, "calibration": calibration}


if __name__ == "__main__":
    main()
