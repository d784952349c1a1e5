"""Labels from a Kalman filter: where its position sensor was bad, the filter says so.

    python examples/kalman_filter.py            five seeds, under a minute on one core
    python examples/kalman_filter.py --small    a quick look, some seconds

A cart drives in a corridor. Its position sensor is good for a while, poor for a while, and silent
at times; a Kalman filter makes the best of it. `biv.labels.posterior` takes positions and their
variances out of the filter's states, and `BIVRegressor` (it wants scikit-learn) learns to tell the
position from the signal strengths of five radio beacons, for carts without such a sensor.

The filter knows how the cart moves and how noisy its sensor is, so its variances are right. A
filter whose model is wrong gives wrong ones: look at `variance_factor_` of the regressor.

What comes out (the last digits differ between machines):

    60 tracks of 60 labels, 2.44 m off (root mean square)
    (label − truth)²/σ² is 1.01 on average; 1 is right
    Error on new tracks, by signal strengths alone (root mean square ± std of the seeds):
      filtered, all alike   1.65 ± 0.18 m
      filtered, error bars  1.22 ± 0.14 m
      true positions        1.20 ± 0.13 m
    With error bars / all alike, seed by seed: 0.74 ± 0.06, lower with 5 of 5 seeds

With error bars it is almost as good as with the true positions for labels, which nobody has.
"""

import argparse

import numpy as np

import biv

STEP, STEPS = 0.5, 60  # seconds between two readings; readings of a track
# A cart in a corridor: pulled to the middle, slowed down, and pushed at random.
MOVE = np.array([[1.0, STEP], [-0.02 * STEP, 1 - 0.1 * STEP]])
PUSH = np.diag([0.0, 0.25 * STEP])
START = np.diag([30.0, 0.6])  # covariance of position and velocity when a track begins
BEACONS = np.array([-15.0, -8.0, -1.0, 6.0, 14.0])  # metres


def drive(rng):
    """The true states of a track, (steps, 2): position and velocity."""
    states = [rng.multivariate_normal(np.zeros(2), START)]
    for _ in range(STEPS - 1):
        states.append(MOVE @ states[-1] + rng.normal(size=2) * np.sqrt(np.diag(PUSH)))
    return np.array(states)


def measure(position, rng):
    """A position sensor: good for a while, poor for a while, and at times silent (infinite)."""
    kind = np.repeat(rng.choice(3, p=[0.3, 0.4, 0.3], size=STEPS // 6), 6)
    variance = np.array([0.2, 6.0, np.inf])[kind] ** 2
    noise = np.sqrt(np.where(np.isfinite(variance), variance, 0)) * rng.normal(size=STEPS)
    return position + noise, variance


def kalman_filter(measured, variance):
    """What the filter believes after each step: pairs of a mean and a covariance."""
    mean, covariance = np.zeros(2), START
    beliefs = []
    for y, v in zip(measured, variance, strict=True):
        if beliefs:
            mean, covariance = MOVE @ mean, MOVE @ covariance @ MOVE.T + PUSH
        gain = covariance[:, 0] / (covariance[0, 0] + v)  # 0 when the sensor is silent
        mean = mean + gain * (y - mean[0])
        covariance = covariance - np.outer(gain, covariance[0])
        beliefs.append((mean, covariance))
    return beliefs


def signal_strengths(position, rng):
    """What a radio on the cart hears of each beacon, in decibels: what is learned from."""
    distance = np.hypot(position[:, None] - BEACONS, 2.0)
    return -20 * np.log10(distance) + rng.normal(0, 2.0, size=distance.shape)


def labelled_tracks(tracks, rng):
    """Rows to learn from: signal strengths, filtered position, its variance; and the truth."""
    parts = []
    for _ in range(tracks):
        position = drive(rng)[:, 0]
        beliefs = kalman_filter(*measure(position, rng))
        y, variance = biv.labels.posterior(beliefs, component=0)  # 0: the position
        parts.append((signal_strengths(position, rng), y, variance, position))
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def main(arguments=None):
    """Learn positions from signal strengths, with the filter's covariances and without."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="how many (default: 5, or 2 if small)")
    parser.add_argument("--small", action="store_true", help="less of everything, for a quick look")
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

        new = np.concatenate([drive(rng)[:, 0] for _ in range(100)])
        heard = signal_strengths(new, rng)
        for name, loss, labels, error_bars in (
            ("filtered, all alike", "l2", y, variance),
            ("filtered, error bars", "biv", y, variance),
            ("true positions", "l2", truth, None),  # which nobody has: the best that can be
        ):
            model = biv.BIVRegressor(loss=loss, random_state=seed, **networks)
            found = model.fit(x, labels, y_var=error_bars).predict(heard)
            errors.setdefault(name, []).append(np.sqrt(np.mean((found - new) ** 2)))

    print(f"{tracks} tracks of {STEPS} labels, {np.mean(label_error):.2f} m off (root mean square)")
    print(f"(label − truth)²/σ² is {np.mean(calibration):.2f} on average; 1 is right")
    print("Error on new tracks, by signal strengths alone (root mean square ± std of the seeds):")
    for name, values in errors.items():
        print(f"  {name:22}{np.mean(values):.2f} ± {np.std(values):.2f} m")
    alike, weighted, _ = errors.values()
    ratio = np.divide(weighted, alike)
    print(
        f"With error bars / all alike, seed by seed: {ratio.mean():.2f} ± {ratio.std():.2f}, "
        f"lower with {np.sum(ratio < 1)} of {seeds} seeds"
    )
    return {"l2": alike, "biv": weighted, "calibration": calibration}


if __name__ == "__main__":
    main()
