"""Labels from a Kalman filter, whose covariance shows where its sensor was bad.

    python examples/kalman_filter.py            five seeds, under a minute on one core
    python examples/kalman_filter.py --small    a quick look, some seconds

A cart drives in a corridor. Its position sensor is sometimes good, sometimes poor and sometimes
silent. A Kalman filter estimates the position from it. `biv.labels.posterior` takes positions and
their variances from the filter's states. `BIVRegressor` (which requires scikit-learn) then learns
to predict the position from the signal strengths of five radio beacons, for carts without a sensor.

The filter knows how the cart moves and how noisy its sensor is, so its variances are right. A
filter with a wrong model gives wrong variances. `variance_factor_` of the regressor shows that.

Output (the last digits differ between machines):

    60 tracks of 60 labels; root mean square error of the labels 2.44 m
    (label − truth)²/σ² is 1.01 on average; 1 is right
    Error on new tracks, from signal strengths alone (root mean square ± std of the seeds):
      filtered, unweighted  1.65 ± 0.18 m
      filtered, error bars  1.22 ± 0.14 m
      true positions        1.20 ± 0.13 m
    With error bars / unweighted, per seed: 0.74 ± 0.06, lower with 5 of 5 seeds

With error bars it is almost as good as with the true positions as labels, which nobody has.
"""

import argparse

import numpy as np

import biv

STEP, STEPS = 0.5, 60  # seconds between two readings; number of readings per track
# Dynamics of the cart: a pull to the middle, friction, and random pushes.
MOVE = np.array([[1.0, STEP], [-0.02 * STEP, 1 - 0.1 * STEP]])
PUSH = np.diag([0.0, 0.25 * STEP])
START = np.diag([30.0, 0.6])  # covariance of position and velocity at the start of a track
BEACONS = np.array([-15.0, -8.0, -1.0, 6.0, 14.0])  # positions in metres


def drive(rng):
    """Return the true states of a track, (steps, 2): position and velocity."""
    states = [rng.multivariate_normal(np.zeros(2), START)]
    for _ in range(STEPS - 1):
        states.append(MOVE @ states[-1] + rng.normal(size=2) * np.sqrt(np.diag(PUSH)))
    return np.array(states)


def measure(position, rng):
    """Return the readings of a position sensor and their variances, infinite where it is silent."""
    kind = np.repeat(rng.choice(3, p=[0.3, 0.4, 0.3], size=STEPS // 6), 6)
    variance = np.array([0.2, 6.0, np.inf])[kind] ** 2
    noise = np.sqrt(np.where(np.isfinite(variance), variance, 0)) * rng.normal(size=STEPS)
    return position + noise, variance


def kalman_filter(measured, variance):
    """Return the states of the filter after each step: pairs of a mean and a covariance."""
    mean, covariance = np.zeros(2), START
    states = []
    for y, v in zip(measured, variance, strict=True):
        if states:
            mean, covariance = MOVE @ mean, MOVE @ covariance @ MOVE.T + PUSH
        gain = covariance[:, 0] / (covariance[0, 0] + v)  # 0 if the sensor is silent
        mean = mean + gain * (y - mean[0])
        covariance = covariance - np.outer(gain, covariance[0])
        states.append((mean, covariance))
    return states


def signal_strengths(position, rng):
    """Return the signal strength of each beacon at the cart, in decibels: the features."""
    distance = np.hypot(position[:, None] - BEACONS, 2.0)
    return -20 * np.log10(distance) + rng.normal(0, 2.0, size=distance.shape)


def labelled_tracks(tracks, rng):
    """Return signal strengths, filtered positions, their variances and the true positions."""
    parts = []
    for _ in range(tracks):
        position = drive(rng)[:, 0]
        states = kalman_filter(*measure(position, rng))
        y, variance = biv.labels.posterior(states, component=0)  # 0: the position
        parts.append((signal_strengths(position, rng), y, variance, position))
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def main(arguments=None):
    """Learn positions from signal strengths, with and without the filter's covariances."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="number of seeds (default: 5, or 2 with --small)")
    parser.add_argument(
        "--small", action="store_true", help="use less data and fewer epochs, for a quick look"
    )
    options = parser.parse_args(arguments)
    seeds = options.seeds or (2 if options.small else 5)
    tracks = 20 if options.small else 60
    networks = {"members": 4, "folds": 4} if options.small else {}

    errors, calibration, label_error = {}, [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        x, y, variance, truth = labelled_tracks(tracks, rng)
        calibration.append(np.mean((y - truth) ** 2 / variance))
        label_error.append(np.sqrt(np.mean((y - truth) ** 2)))

        new_truth = np.concatenate([drive(rng)[:, 0] for _ in range(100)])
        x_new = signal_strengths(new_truth, rng)
        for name, loss, labels, error_bars in (
            ("filtered, unweighted", "l2", y, variance),
            ("filtered, error bars", "biv", y, variance),
            ("true positions", "l2", truth, None),  # the best possible labels, which nobody has
        ):
            model = biv.BIVRegressor(loss=loss, random_state=seed, **networks)
            pred = model.fit(x, labels, y_var=error_bars).predict(x_new)
            errors.setdefault(name, []).append(np.sqrt(np.mean((pred - new_truth) ** 2)))

    print(
        f"{tracks} tracks of {STEPS} labels; root mean square error of the labels "
        f"{np.mean(label_error):.2f} m"
    )
    print(f"(label − truth)²/σ² is {np.mean(calibration):.2f} on average; 1 is right")
    print("Error on new tracks, from signal strengths alone (root mean square ± std of the seeds):")
    for name, values in errors.items():
        print(f"  {name:22}{np.mean(values):.2f} ± {np.std(values):.2f} m")
    unweighted, weighted, _ = errors.values()
    ratio = np.divide(weighted, unweighted)
    print(
        f"With error bars / unweighted, per seed: {ratio.mean():.2f} ± {ratio.std():.2f}, "
        f"lower with {np.sum(ratio < 1)} of {seeds} seeds"
    )
    return {"l2": unweighted, "biv": weighted, "calibration": calibration}


if __name__ == "__main__":
    main()
