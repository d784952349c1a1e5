"""Crowd ratings, few of some items and many of others, as labels with error bars.

    python examples/crowd_ratings.py            five seeds, half a minute on one core
    python examples/crowd_ratings.py --small    a quick look, some seconds

A simulated crowd rates items. Some raters are always strict, others lenient; most items have one
or two ratings, a few have dozens. `biv.labels.ratings` turns them into a label and a variance for
each item, and `BIVRegressor` (it wants scikit-learn) learns quality from the features of items, so
that it can be told of items that nobody has rated. All items alike, or by their error bars?

What comes out (the last digits differ between machines):

    2000 items, 5.1 ratings each on average
    (label − truth)²/σ² is 1.02 on average; 1 is right
    Error of the predicted quality of new items (root mean square ± std of the seeds):
      mean ratings, all alike       0.313 ± 0.019
      biases taken out, all alike   0.287 ± 0.017
      biases taken out, error bars  0.224 ± 0.021
    With error bars / all alike, seed by seed: 0.78 ± 0.05, lower with 5 of 5 seeds
"""

import argparse

import numpy as np

import biv


def quality(x):
    """What items are worth, by their features: the truth that the crowd guesses at."""
    return 5 + np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3]


def simulated_crowd(items, raters, rng):
    """The features of the items; and the ratings, one a row: of which item, by whom, how many."""
    x = rng.normal(size=(items, 5))
    # One or two ratings of most items and dozens of a few, as crowds have it.
    counts = np.minimum(rng.zipf(1.7, size=items), raters // 2)
    bias = rng.normal(0, 0.7, size=raters)  # strict or lenient, always
    bias -= bias.mean()  # quality is what raters say on average
    item = np.repeat(np.arange(items), counts)
    rater = np.concatenate([rng.choice(raters, size=n, replace=False) for n in counts])
    rating = quality(x)[item] + bias[rater] + rng.normal(0, 1.5, size=len(item))
    return x, item, rater, rating


def main(arguments=None):
    """Learn the quality of items from their features, in three ways; print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="how many (default: 5, or 2 if small)")
    parser.add_argument("--small", action="store_true", help="less of everything, for a quick look")
    options = parser.parse_args(arguments)
    seeds = options.seeds or (2 if options.small else 5)
    items, raters = (1000, 40) if options.small else (2000, 60)
    networks = {"members": 4, "folds": 4} if options.small else {}

    errors, calibration = {}, []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        x, item, rater, rating = simulated_crowd(items, raters, rng)
        means = biv.labels.ratings(item, rating)  # the mean rating of each item, and its variance
        corrected = biv.labels.ratings(item, rating, rater)  # the same, without raters' biases
        truth = quality(x[corrected.items])  # labels come one an item, in the order of .items
        calibration.append(np.mean((corrected.y - truth) ** 2 / corrected.variance))

        x_new = rng.normal(size=(5000, 5))  # items that nobody has rated yet
        for name, labels, loss in (
            ("mean ratings, all alike", means, "l2"),
            ("biases taken out, all alike", corrected, "l2"),
            ("biases taken out, error bars", corrected, "biv"),
        ):
            model = biv.BIVRegressor(loss=loss, random_state=seed, **networks)
            model.fit(x[labels.items], labels.y, y_var=labels.variance)
            error = np.sqrt(np.mean((model.predict(x_new) - quality(x_new)) ** 2))
            errors.setdefault(name, []).append(error)

    print(f"{items} items, {len(item) / items:.1f} ratings each on average")
    print(f"(label − truth)²/σ² is {np.mean(calibration):.2f} on average; 1 is right")
    print("Error of the predicted quality of new items (root mean square ± std of the seeds):")
    for name, values in errors.items():
        print(f"  {name:30}{np.mean(values):.3f} ± {np.std(values):.3f}")
    alike, weighted = list(errors.values())[1:]
    ratio = np.divide(weighted, alike)
    print(
        f"With error bars / all alike, seed by seed: {ratio.mean():.2f} ± {ratio.std():.2f}, "
        f"lower with {np.sum(ratio < 1)} of {seeds} seeds"
    )
    return {"l2": alike, "biv": weighted, "calibration": calibration}


if __name__ == "__main__":
    main()
