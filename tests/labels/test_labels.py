"""Labels from real labelling processes: simulated, and their variances held to the errors made."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

import biv
from biv import labels

N = 20_000


def kalman_track(rng, steps=60):
    """A body that drifts at random, seen in noise: the filter's states, and where it was."""
    f, h = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    q, r = np.diag([0.01, 0.02]), 4.0
    truth = rng.multivariate_normal([0.0, 0.0], np.eye(2))
    mean, covariance = np.zeros(2), np.eye(2)
    states, positions = [], []
    for _ in range(steps):
        truth = f @ truth + rng.multivariate_normal([0, 0], q)
        mean, covariance = f @ mean, f @ covariance @ f.T + q
        seen = truth[0] + math.sqrt(r) * rng.normal()
        gain = covariance @ h.T / (h @ covariance @ h.T + r)
        mean = mean + gain[:, 0] * (seen - mean[0])
        covariance = covariance - gain @ h @ covariance
        states.append(SimpleNamespace(x=mean[:, None], P=covariance))
        positions.append(truth[0])
    return states[-1], positions[-1]


def grouped(rng, counts, spread):
    """Items measured so many times, each with a spread of its own."""
    truth = rng.normal(size=len(counts)) * 5
    items = np.repeat(np.arange(len(counts)), counts)
    return truth, items, truth[items] + spread[items] * rng.normal(size=len(items))


def split_normal(rng):
    """The truth by the error bars: of either side by its share, one scale below and one above."""
    y, below, above = rng.normal(size=N), *rng.uniform(0.1, 2.0, size=(2, N))
    up = rng.random(N) < above / (above + below)
    truth = y + np.where(up, above, -below) * np.abs(rng.normal(size=N))
    z = 1.6448536269514722
    return truth, labels.asymmetric(y, z * below, z * above, level=0.9, centre="mode")


def skewed(rng):
    """Medians, and percentiles of 5 % and 95 %, of y + sZ + bZ²."""
    y, s = rng.normal(size=N), rng.uniform(0.5, 2.0, N)
    b = rng.uniform(-0.1, 0.1, N) * s
    z = 1.6448536269514722
    normal = rng.normal(size=N)
    truth = y + s * normal + b * normal**2
    return truth, labels.asymmetric(y, s * z - b * z**2, s * z + b * z**2, level=0.9)


def equal_repeats(rng):
    counts = rng.integers(1, 5, size=N)
    truth, items, values = grouped(rng, counts, np.full(N, 2.0))
    return truth, labels.repeats(items, values)


def unequal_repeats(rng):
    """Variances that follow the distribution that is assumed of them."""
    counts, d0 = rng.integers(1, 6, size=N), 10.0
    spread = np.sqrt(d0 / rng.chisquare(d0, size=N))
    truth, items, values = grouped(rng, counts, spread)
    return truth, labels.repeats(items, values)


def other_repeats(rng):
    """Variances that do not: two kinds of items, one ten times as noisy."""
    counts = rng.integers(2, 6, size=N)
    truth, items, values = grouped(rng, counts, np.where(rng.random(N) < 0.5, 1.0, 2.0))
    return truth, labels.repeats(items, values)


def crowd(rng):
    counts = rng.integers(2, 6, size=4000)
    truth, items, values = grouped(rng, counts, np.full(4000, 1.0))
    raters = rng.integers(0, 60, size=len(items))
    bias = rng.normal(size=60) * 2
    found = labels.ratings(items, values + bias[raters], raters)
    return truth + np.average(bias[raters]), found


def busy_crowd(rng):
    """Raters of whom each has rated little: their biases are uncertain, and cost degrees."""
    truth, items, values = grouped(rng, np.full(3000, 3), np.full(3000, 1.0))
    raters = rng.integers(0, 1000, size=len(items))
    bias = rng.normal(size=1000)
    found = labels.ratings(items, values + bias[raters], raters)
    return truth + np.average(bias[raters]), found


def sparse_crowd(rng):
    """Raters in a ring, of whom each has items in common with few others: many such crowds."""
    truths, parts = [], []
    for _ in range(60):
        truth, items, values = grouped(rng, np.full(60, 2), np.full(60, 1.0))
        raters = (items // 3 + np.tile([0, 1], 60) * rng.integers(1, 3, size=120)) % 20
        bias = rng.normal(size=20)
        parts.append(labels.ratings(items, values + bias[raters], raters))
        truths.append(truth + np.average(bias[raters]))
    y, variance = np.hstack([tuple(part) for part in parts])
    return np.hstack(truths), labels.NoisyLabels(y, variance)


def few_items(rng):
    """Three items measured four times, again and again: their common variance is uncertain too."""
    parts = [labels.repeats(np.repeat(np.arange(3), 4), rng.normal(size=12)) for _ in range(500)]
    y, variance = np.hstack([tuple(part) for part in parts])
    return np.zeros(1500), labels.NoisyLabels(y, variance)


def normal(rng):
    truth, std = rng.normal(size=N), rng.uniform(0.1, 3, size=N)
    return truth, truth + std * rng.normal(size=N), std


def ranges(rng):
    truth, y, std = normal(rng)
    return truth, labels.plus_minus(y, 1.6448536 * std, level=0.9)


def rounded(rng):
    truth = rng.uniform(0, 100, size=N)
    return truth, labels.plus_minus(truth.round(), 0.5)


def intervals(rng):
    truth, y, std = normal(rng)
    return truth, labels.interval(y - 1.959964 * std, y + 1.959964 * std)


def monte_carlo(rng, n):
    centre, std = rng.normal(size=N), rng.uniform(0.1, 3, size=N)
    draws = centre + std * rng.normal(size=(n + 1, N))
    return draws[0], labels.samples(draws[1:], axis=0)


def mixture(rng):
    centre, between = rng.normal(size=N), rng.uniform(0.1, 2, size=N)
    means = centre + between * rng.normal(size=(31, N))
    own = rng.uniform(0.1, 2, size=(31, N))
    truth = means[0] + np.sqrt(own[0]) * rng.normal(size=N)
    return truth, labels.ensemble(means[1:], own[1:])


def few_members(rng, count, correlation=0.0):
    """A common deviation of the members makes them agree better with each other than with truth."""
    between, own = rng.uniform(0.8, 1.2, size=N), rng.uniform(0.05, 0.15, size=(count + 1, N))
    deviations = math.sqrt(1 - correlation) * rng.normal(size=(count + 1, N))
    deviations[1:] += math.sqrt(correlation) * rng.normal(size=N)
    deviations[0] = rng.normal(size=N)
    means = rng.normal(size=N) + between * deviations
    truth = means[0] + np.sqrt(own[0]) * rng.normal(size=N)
    return truth, labels.ensemble(means[1:], own[1:], correlation=correlation)


def tracks(rng):
    states, truth = zip(*(kalman_track(rng) for _ in range(400)), strict=True)
    return np.array(truth), labels.posterior(states, component=0)


def polls(rng):
    truth, n = rng.uniform(0.05, 0.95, size=N), rng.integers(40, 2000, size=N)
    return truth, labels.poll(rng.binomial(n, truth) / n, n)


def finite_polls(rng):
    truth, n = rng.integers(40, 160, size=N), rng.integers(40, 150, size=N)
    asked = rng.hypergeometric(truth, 200 - truth, n)
    return truth / 200, labels.poll(asked / n, n, population=200)


def clustered_polls(rng):
    """Twenty answers in four clusters of five, in which all answer alike: a design effect of 5."""
    truth = rng.uniform(0.05, 0.95, size=N)
    return truth, labels.poll(rng.binomial(4, truth) / 4, 20, design_effect=5)


def poisson(rng):
    rate, time = rng.uniform(20, 100, size=N), rng.uniform(1, 3, size=N)
    return rate, labels.counts(rng.poisson(rate * time), time)


def log_poisson(rng):
    rate = rng.uniform(20, 200, size=N)
    return np.log(rate), labels.log_counts(rng.poisson(rate))


def log_ratios(rng):
    a, b = rng.uniform(30, 300, size=(2, N))
    return np.log(a / b), labels.log_count_ratio(rng.poisson(a), rng.poisson(b))


def ratios(rng):
    a, b = rng.uniform(100, 300, size=N), rng.uniform(300, 900, size=N)
    return a / b, labels.count_ratio(rng.poisson(a), rng.poisson(b))


def targets(rng):
    value, std, reward = rng.normal(size=N), rng.uniform(0.5, 2, size=N), rng.normal(size=N)
    ends = rng.random(N) < 0.2
    estimate = value + std * rng.normal(size=N)
    noisy = reward + 0.3 * rng.normal(size=N)
    found = labels.bootstrapped(
        noisy, estimate, std**2, gamma=0.9, terminal=ends, reward_variance=np.full(N, 0.09)
    )
    return reward + np.where(ends, 0, 0.9 * value), found


# What a delta method leaves out, of the order of one over the count, is allowed for.
CALIBRATED = {
    "asymmetric": (skewed, 0), "split": (split_normal, 0), "equal repeats": (equal_repeats, 0), "unequal repeats": (unequal_repeats, 0.02),
    "other repeats": (other_repeats, 0.05), "crowd": (crowd, 0), "busy crowd": (busy_crowd, 0), "sparse crowd": (sparse_crowd, 0.1),
    "few items": (few_items, 0), "ranges": (ranges, 0),
    "rounded": (rounded, 0), "intervals": (intervals, 0),
    "few samples": (lambda rng: monte_carlo(rng, 8), 0),
    "samples": (lambda rng: monte_carlo(rng, 50), 0), "mixture": (mixture, 0),
    "two members": (lambda rng: few_members(rng, 2), 0), "three members": (lambda rng: few_members(rng, 3), 0),
    "five members": (lambda rng: few_members(rng, 5), 0), "correlated": (lambda rng: few_members(rng, 5, 0.5), 0),
    "much correlated": (lambda rng: few_members(rng, 5, 0.9), 0),
    "tracks": (tracks, 0), "polls": (polls, 0.01), "finite polls": (finite_polls, 0.02), "clustered polls": (clustered_polls, 0.05),
    "counts": (poisson, 0.03), "log counts": (log_poisson, 0.02),
    "log ratios": (log_ratios, 0.02), "ratios": (ratios, 0.02), "targets": (targets, 0),
}  # fmt: skip


@pytest.mark.parametrize("process", CALIBRATED)
def test_a_variance_is_that_of_the_error(process):
    simulate, bias = CALIBRATED[process]
    truth, found = simulate(np.random.default_rng(0))
    chi = biv.metrics.reduced_chi_squared(truth, found.y, found.variance)
    assert abs(chi.value - 1) < 4 * chi.stderr + bias
    assert (
        abs(np.mean(found.y - truth)) < 5 * np.std(found.y - truth) / math.sqrt(len(truth)) + 0.03
    )


@pytest.mark.parametrize(
    ("a", "b", "stated"),
    [(5, 5, 0.78), (10, 10, 0.92), (50, 50, 0.99), (1000, 5, 1.05), (1000, 2, 1.41)],
)
def test_a_ratio_of_small_counts_is_off_by_what_its_docstring_says(a, b, stated):
    """The exact mean of (y − truth)²/variance over two Poisson counts, the denominator above 0."""
    events, others = np.meshgrid(np.arange(1400.0), np.arange(1.0, 200.0), indexing="ij")
    chance = stats.poisson(a).pmf(events) * stats.poisson(b).pmf(others)
    found = labels.count_ratio(events.ravel(), others.ravel())
    ratio = (found.y - a / b) ** 2 / found.variance
    assert np.average(ratio, weights=chance.ravel()) == pytest.approx(stated, abs=0.01)


def ratio_of_errors(truth, found):
    return np.mean((found.y - truth) ** 2 / found.variance)


@pytest.mark.parametrize(("count", "stated"), [(2, 3.6), (3, 1.9), (5, 1.0)])
def test_two_kinds_of_items_are_off_by_what_the_docstring_says(count, stated):
    """Half of the items have a hundred times the variance of the others; alone, each is right."""
    rng = np.random.default_rng(10)
    spread = np.repeat([1.0, 10.0], N // 2)
    truth, items, values = grouped(rng, np.full(N, count), spread)
    assert ratio_of_errors(truth, labels.repeats(items, values)) == pytest.approx(stated, rel=0.1)
    half = items < N // 2
    alone = labels.repeats(items[half], values[half])
    assert ratio_of_errors(truth[: N // 2], alone) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("count", "stated"), [(4, 3.0), (5, 2.0), (8, 1.4), (50, 1.04)])
def test_few_samples_state_a_larger_variance_than_their_error(count, stated):
    draws = np.random.default_rng(11).normal(size=(count + 1, N))
    found = labels.samples(draws[1:], axis=0)
    assert found.variance.mean() / (1 + 1 / count) == pytest.approx(stated, rel=0.03)
    alike = labels.ensemble(draws[1:], np.zeros((count, N)))
    assert alike.variance.mean() / (1 + 1 / count) == pytest.approx(1, rel=0.03)
    assert ratio_of_errors(draws[0], alike) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("own", "correlation", "stated"), [(0, 0.5, 2.7), (0, 0.9, 16), (0.1, 0.5, 2.4), (0.1, 0.9, 9)]
)
def test_correlated_members_are_off_by_what_the_docstring_says(own, correlation, stated):
    rng = np.random.default_rng(12)
    means = math.sqrt(correlation) * rng.normal(size=N)
    means = means + math.sqrt(1 - correlation) * rng.normal(size=(5, N))
    truth = math.sqrt(1 + own) * rng.normal(size=N)
    found = labels.ensemble(means, np.full((5, N), own))
    assert ratio_of_errors(truth, found) == pytest.approx(stated, rel=0.05)
    told = labels.ensemble(means, np.full((5, N), own), correlation=correlation)
    assert ratio_of_errors(truth, told) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("noise", "stated"),
    [
        (stats.lognorm(0.4), 1.13), (stats.lognorm(0.7), 1.5), (stats.lognorm(1.0), 2.4),
        (stats.gamma(4), 1.03), (stats.expon(), 1.13),
    ],
)  # fmt: skip
def test_skewed_noise_is_off_by_what_the_docstring_says(noise, stated):
    """The exact mean squared error of the label, over its variance."""
    low, median, high = noise.ppf([0.158655, 0.5, 0.841345])
    y, variance = labels.asymmetric([median], [median - low], [high - median])
    error = noise.var() + (noise.mean() - y[0]) ** 2
    assert error / variance[0] == pytest.approx(stated, rel=0.03)


def test_few_values_borrow_from_many():
    """Of two values that happen to agree nobody learns that they are exact."""
    rng = np.random.default_rng(3)
    items, values = np.repeat(np.arange(300), 3), rng.normal(size=900)
    values[:3] = 1.0  # by chance
    found = labels.repeats([*items, 300], [*values, 0.0])
    assert found.variance[0] == pytest.approx(1 / 3, rel=0.3)
    assert found.variance[300] == pytest.approx(1, rel=0.2)  # one value, and still an error bar
    assert found.counts[0] == 3
    assert found.counts[300] == 1


def test_many_values_speak_for_themselves():
    rng = np.random.default_rng(4)
    spread = np.repeat([1.0, 10.0], 50)
    items = np.repeat(np.arange(100), 200)
    found = labels.repeats(items, spread[items] * rng.normal(size=20_000))
    np.testing.assert_allclose(found.variance, spread**2 / 200, rtol=0.5)


def test_biases_of_raters_are_taken_out():
    rng = np.random.default_rng(5)
    truth, bias = rng.normal(size=500), np.array([3.0, 0.0, -3.0, 1.0])
    items, raters = np.repeat(np.arange(500), 2), rng.integers(0, 4, size=1000)
    values = truth[items] + bias[raters] + 0.1 * rng.normal(size=1000)
    plain, found = labels.ratings(items, values), labels.ratings(items, values, raters)
    off = found.y - truth - np.mean(bias[raters])
    assert np.std(off) < 0.1
    assert np.std(plain.y - truth) > 1
    assert found.variance.mean() < plain.variance.mean() / 20


def ring_of_raters(people=40):
    """Each rater shares items with two neighbours, one of them twice; some ratings are repeated."""
    items = np.repeat(np.arange(2 * people), 2)
    raters = (items // 2 + np.tile([0, 1], 2 * people)) % people
    items, raters = np.append(items, [0, 0, 5]), np.append(raters, [0, 0, 7])
    return items, raters, np.eye(2 * people)[items], np.eye(people)[raters]


def test_labels_and_their_variances_are_those_of_least_squares():
    """The covariance of a dense regression on items and raters, with biases adding up to 0."""
    rng = np.random.default_rng(8)
    items, raters, by_item, by_rater = ring_of_raters()
    values = rng.normal(size=len(items))
    counts = by_item.sum(axis=0)
    design = np.hstack([by_item, by_rater])
    condition = np.append(np.zeros(len(counts)), by_rater.sum(axis=0))
    inverse = np.linalg.inv(design.T @ design + np.outer(condition, condition))
    exact = inverse - np.outer(*[inverse @ condition] * 2)  # the condition holds without error
    residuals = np.eye(len(items)) - design @ exact @ design.T

    added, share = labels._uncertainty(items, raters, counts.astype(int), by_rater.shape[1])
    np.testing.assert_allclose(added, np.diag(exact)[: len(counts)] - 1 / counts, atol=1e-9)
    np.testing.assert_allclose(share * (counts - 1), np.diag(residuals) @ by_item, atol=1e-9)
    found = labels.ratings(items, values, raters)
    np.testing.assert_allclose(found.y, (exact @ design.T @ values)[: len(counts)], atol=1e-7)


def test_raters_of_every_item_add_no_variance():
    items, raters = (part.ravel() for part in np.indices((9, 4)))
    added, share = labels._uncertainty(items, raters, np.full(9, 4), 4)
    np.testing.assert_allclose(added, 0, atol=1e-12)
    np.testing.assert_allclose(share, 8 / 9)


def test_the_uncertainty_of_very_many_raters_is_simulated(monkeypatch):
    items, raters, by_item, _ = ring_of_raters(people=20)
    counts = by_item.sum(axis=0).astype(int)
    exact = labels._uncertainty(items, raters, counts, 20)
    monkeypatch.setattr(labels, "MOST_RATERS", 10)
    monkeypatch.setattr(labels, "SIMULATIONS", 800)
    for one, other in zip(labels._uncertainty(items, raters, counts, 20), exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.25)


def test_a_crowd_as_a_whole_is_taken_to_be_right():
    rng = np.random.default_rng(6)
    items, raters = rng.integers(0, 40, size=300), rng.integers(0, 9, size=300)
    values = rng.normal(size=300) + raters
    found = labels.ratings(items, values, raters)
    assert np.average(found.y, weights=found.counts) == pytest.approx(values.mean(), abs=1e-6)


def test_of_hardly_anything_known_the_variance_is_finite():
    """Pairs of values whose spreads differ by orders of magnitude."""
    rng = np.random.default_rng(7)
    items = np.repeat(np.arange(400), 2)
    spread = np.exp(4 * rng.normal(size=400))
    found = labels.repeats(items, spread[items] * rng.normal(size=800))
    assert (found.variance > 0).all()
    assert np.median(found.variance / spread**2) < 10


def test_names_may_be_text_and_come_back_in_order():
    found = labels.ratings(["b", "a", "b", "a"], [1.0, 2.0, 3.0, 6.0])
    y, variance = pickle.loads(pickle.dumps(found))
    assert np.array_equal(y, found.y)
    assert np.array_equal(variance, found.variance)
    assert found.items.tolist() == ["a", "b"]
    assert found.y.tolist() == [4.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_stay_tensors(dtype):
    ones = torch.ones(3, dtype=dtype)
    for found in (
        labels.plus_minus(ones, ones, level=0.9),
        labels.interval(ones, 2 * ones),
        labels.asymmetric(ones, ones, 2 * ones),
        labels.samples(torch.randn(3, 5, dtype=dtype)),
        labels.ensemble(torch.randn(5, 3, dtype=dtype), torch.ones(5, 3, dtype=dtype)),
        labels.bootstrapped(ones, ones, ones, gamma=0.9, terminal=torch.tensor([0, 1, 0])),
    ):
        for tensor in found:
            assert tensor.dtype == dtype
            assert tensor.shape == (3,)


def test_what_is_read_only_is_taken_too():
    found = labels.bootstrapped(
        *np.broadcast_to(1.0, (3, 2)), gamma=0.5, terminal=np.broadcast_to([True, False], (2,))
    )
    assert found.y.tolist() == [1.0, 1.5]


def test_notes_stay_where_a_field_is_replaced():
    found = labels.repeats(["a", "a", "b", "b"], [1.0, 2.0, 3.0, 5.0])
    other = found._replace(variance=found.variance * 2)
    assert (other.variance == 2 * found.variance).all()
    assert (other.items == found.items).all()
    assert (other.counts == found.counts).all()


def test_a_terminal_state_is_not_looked_at():
    y, variance = labels.bootstrapped(
        [1.0, 1.0], [np.nan, 2.0], [np.nan, 1.0], gamma=1.0, terminal=[True, False]
    )
    assert y.tolist() == [1.0, 3.0]
    assert variance.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "state",
    [
        SimpleNamespace(mean=[1.0, 2.0], cov=[[1.0, 0.5], [0.5, 4.0]]),
        SimpleNamespace(x=np.array([[1.0], [2.0]]), P=np.array([[1.0, 0.5], [0.5, 4.0]])),
        torch.distributions.MultivariateNormal(
            torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.5], [0.5, 4.0]])
        ),
        (np.array([1.0, 2.0]), np.array([[1.0, 0.5], [0.5, 4.0]])),
    ],
    ids=["scipy", "filterpy", "torch", "pair"],
)
def test_states_of_several_libraries(state):
    assert labels.posterior(state, component=1) == (pytest.approx(2.0), pytest.approx(4.0))
    y, variance = labels.posterior([state] * 3, component=[1.0, -1.0])
    np.testing.assert_allclose(y, -1.0)
    np.testing.assert_allclose(variance, 4.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: labels.repeats([1, 2], [1.0, 2.0]), "two values at least"),
        (lambda: labels.repeats([1, 1], [2.0, 2.0]), "spread is 0"),
        (lambda: labels.repeats([1, 1], [2.0]), "two columns of equal length"),
        (lambda: labels.repeats([], []), "must not be empty"),
        (lambda: labels.repeats([1, 1], [2.0, np.nan]), "found nan in row 1"),
        (lambda: labels.ratings([1, 1, 2, 2], [1.0, 2, 3, 4], ["a", "b", "c", "d"]), "found 2 groups without"),
        (lambda: labels.ratings([1, 1], [1.0, 2.0], ["a", "b"]), "too few to tell"),
        (lambda: labels.plus_minus([1.0], [-1.0]), "half_width must be non-negative"),
        (lambda: labels.asymmetric([1.0], [-1.0], [1.0]), "minus must be non-negative"),
        (lambda: labels.asymmetric([1.0], [1.0], [1.0, 2.0]), "plus must have the shape of y"),
        (lambda: labels.asymmetric([1.0], [1.0], [2.0], centre="mean"), "'median' or 'mode'"),
        (lambda: labels.plus_minus([1.0], [1.0], level=1.0), "level must be in"),
        (lambda: labels.plus_minus([1.0, 2.0], [1.0, 2.0, 3.0]), "must have the shape"),
        (lambda: labels.interval([2.0], [1.0]), "at least as large as low"),
        (lambda: labels.interval([2.0], [3.0, 4.0]), "of one shape"),
        (lambda: labels.samples([[1.0, 2.0, 3.0]]), "must be 4 or more along axis -1; found 3"),
        (lambda: labels.samples([1.0, 2.0, 3.0, 4.0], axis=1), "axis must be one of"),
        (lambda: labels.ensemble([[1.0], [2.0]], [[1.0]]), "variances must have the shape"),
        (lambda: labels.posterior([(np.ones(2), np.eye(3))]), "must have shape"),
        (lambda: labels.posterior([(np.ones(1), -np.eye(1))]), "must not be negative"),
        (lambda: labels.posterior([(np.ones(2), np.eye(2))], component=2), "one of 2"),
        (lambda: labels.posterior([]), "must not be empty"),
        (lambda: labels.poll([1.5], [10]), "share must be in"),
        (lambda: labels.poll([0.5], [0]), "count must be positive"),
        (lambda: labels.poll([0.5], [100], population=50), "at most the population, 50"),
        (lambda: labels.counts([-1.0]), "events must be non-negative"),
        (lambda: labels.counts([1.0], 0.0), "exposure must be positive"),
        (lambda: labels.count_ratio([1.0], [0.0]), "others must be positive"),
        (lambda: labels.bootstrapped([1.0], [1.0], [-1.0], gamma=0.9), "next_variance must be"),
        (lambda: labels.bootstrapped([1.0], [1.0, 2.0], [1.0], gamma=0.9), "shape of reward"),
        (lambda: labels.bootstrapped([1.0], [1.0], [1.0], gamma=1.5), "gamma must be in"),
        (lambda: labels.ensemble([[1.0], [2.0]], correlation=1.0), "correlation must be in"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_state_without_a_covariance_is_told():
    with pytest.raises(TypeError, match="a state must have a mean"):
        labels.posterior([SimpleNamespace(mean=[1.0])])


def test_percentiles_of_a_skewed_distribution_give_its_mean():
    """Of a lognormal one and a gamma one, by scipy; nearer than the median by far."""
    for known in (stats.lognorm(0.4), stats.gamma(4)):
        low, median, high = known.ppf([0.158655, 0.5, 0.841345])
        found = labels.asymmetric([median], [median - low], [high - median])
        assert abs(found.y[0] - known.mean()) < 0.1 * (known.mean() - median)
        assert found.variance[0] == pytest.approx(known.var(), rel=0.15)


@pytest.mark.parametrize("centre", ["median", "mode"])
def test_a_limit_is_a_label_to_ignore(centre):
    found = labels.asymmetric([1.0, 2.0], [np.inf, 0.1], [0.5, 0.1], centre=centre)
    np.testing.assert_allclose(found.y, [1.0, 2.0])
    np.testing.assert_allclose(found.variance, [np.inf, 0.01], rtol=1e-3)
