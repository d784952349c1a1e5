"""Exact and sparse Gaussian processes with known noise, by GPyTorch."""

import time

import torch
import torch.nn.functional as F

from beside.data import AMYLOID, FEW, ScaledLabels, draw, first, timed_scores

GP_STEPS, GP_RATE = 60, 0.3  # chosen by the marginal likelihood of other draws
INDUCING, SVGP_EPOCHS, SVGP_BATCH, SVGP_RATE = 300, 40, 512, 0.02


def gp_class():
    """Return classes of an exact and a sparse GP; GPyTorch may be missing when this is imported."""
    import gpytorch

    def covariance(features):
        # One length scale per column; but one for all if there are as many as 882 columns.
        scales = features if features < 100 else None
        return gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5, ard_num_dims=scales))

    def prior(model, x):
        return gpytorch.distributions.MultivariateNormal(model.mean(x), model.covariance(x))

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = covariance(x.shape[1])

        def forward(self, x):
            return prior(self, x)

    class Sparse(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(
                gpytorch.variational.VariationalStrategy(
                    self, points, distribution, learn_inducing_locations=True
                )
            )
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = covariance(points.shape[1])

        def forward(self, x):
            return prior(self, x)

    return Exact, Sparse


def tensors(rows, labels):
    """Return features, scaled labels and their variances in double precision."""
    columns = rows.x, labels.y, labels.variance
    return tuple(torch.as_tensor(column, dtype=torch.float64) for column in columns)


def likelihood_of(kind, variance):
    """Return a likelihood with known σ², with known σ² and learned noise, or with learned noise."""
    import gpytorch

    if kind == "unused":
        return gpytorch.likelihoods.GaussianLikelihood()
    return gpytorch.likelihoods.FixedNoiseGaussianLikelihood(
        variance, learn_additional_noise=kind == "more"
    )


def exact_gp(kind, *, conditioned_on=None, steps=GP_STEPS):
    """Return a fit of an exact GP, whose hyperparameters are learned from the training rows.

    The GP may then be conditioned on other rows, which takes one factorisation.
    """
    import gpytorch

    def fit(rows):
        exact, _ = gp_class()
        labels = ScaledLabels.fit(rows)
        x, y, variance = tensors(rows, labels)
        likelihood = likelihood_of(kind, variance).double()
        model = exact(x, y, likelihood).double()
        marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=GP_RATE)
        with gpytorch.settings.max_cholesky_size(1 << 20):
            for _ in range(steps):
                optimizer.zero_grad()
                (-marginal(model(x), y)).backward()
                optimizer.step()
        if conditioned_on is not None:
            scaled = ScaledLabels(
                labels.scaler,
                labels.scaler.label(conditioned_on.y),
                labels.scaler.variance(conditioned_on.variance),
            )
            x, y, variance = tensors(conditioned_on, scaled)
            model.set_train_data(x, y, strict=False)
            if kind != "unused":
                likelihood.noise = variance
        model.eval()
        extra = likelihood.second_noise.item() if kind == "more" else 0.0
        with torch.no_grad(), gpytorch.settings.max_cholesky_size(1 << 20):
            model(x[:1])  # computes the factorisation, which is part of the fit

        def predict(new):
            with torch.no_grad(), gpytorch.settings.max_cholesky_size(1 << 20):
                latent = model(torch.as_tensor(new, dtype=torch.float64))
                spread = latent.variance + extra
            return labels.raw(latent.mean, spread.sqrt())

        return predict

    return fit


def sparse_gp(seed, epochs):
    """Return a fit of a variational GP with inducing points, trained in batches."""
    import gpytorch

    def fit(rows):
        _, sparse = gp_class()
        labels = ScaledLabels.fit(rows)
        x, y, variance = tensors(rows, labels)
        # GPyTorch does not add its additional noise if batches bring their noise (see `gp_noise`),
        # so it is added here.
        likelihood = likelihood_of("known", variance).double()
        extra = torch.zeros((), dtype=torch.float64, requires_grad=True)
        # Its initial mean is drawn from torch's global generator, so that the fourth digit of its
        # error differs between runs.
        model = sparse(x[:INDUCING].clone()).double()
        bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
        optimizer = torch.optim.Adam([*model.parameters(), extra], lr=SVGP_RATE)
        order = torch.Generator().manual_seed(seed)
        for _ in range(epochs):
            for batch in torch.randperm(len(x), generator=order).split(SVGP_BATCH):
                optimizer.zero_grad()
                noise = variance[batch] + F.softplus(extra)
                (-bound(model(x[batch]), y[batch], noise=noise)).backward()
                optimizer.step()
        model.eval()

        def predict(new):
            with torch.no_grad():
                latent = model(torch.as_tensor(new, dtype=torch.float64))
                spread = latent.variance + F.softplus(extra)
            return labels.raw(latent.mean, spread.sqrt())

        return predict

    return fit


GP_ALL = "GPyTorch, exact, σ² + learned noise; learned from 1,000, conditioned on 5,500 rows"
GP_SPARSE = f"GPyTorch, sparse, {INDUCING} inducing points, σ² + learned noise"
GP_FEW = {
    "unused": "GPyTorch, exact, one noise for all, error bars unused",
    "known": "GPyTorch, exact, fixed noise σ²",
    "more": "GPyTorch, exact, fixed noise σ² + learned noise",
}


def processes(name, seed, quick):
    """Return the results of GPs on all rows."""
    drawn, steps = draw(name, seed, 500 if quick else None), 2 if quick else GP_STEPS
    few = drawn._replace(train=first(drawn.train, 200 if quick else FEW))
    whole = exact_gp("more", conditioned_on=drawn.train, steps=steps)
    results = {GP_ALL: timed_scores(whole, few)}
    if name != AMYLOID:  # 882 columns of inducing points would take minutes
        results[GP_SPARSE] = timed_scores(sparse_gp(seed, 1 if quick else SVGP_EPOCHS), drawn)
    return results


def gp_noise():
    """Return the noise variance of a label for known σ² = 0.5 and a learned noise of 0.2."""
    import gpytorch

    likelihood = likelihood_of("more", torch.full((3,), 0.5)).double()
    likelihood.second_noise = 0.2
    latent = gpytorch.distributions.MultivariateNormal(
        torch.zeros(3).double(), torch.eye(3).double()
    )
    with torch.no_grad():
        labels = {
            "as made": likelihood(latent, [torch.zeros(3, 1)]),
            "noise=": likelihood(latent, noise=torch.full((3,), 0.5).double()),
        }
        return {call: float(label.variance[0]) - 1 for call, label in labels.items()}


def gp_scaling(quick):
    """Return the seconds of a training step of an exact GP, by the number of rows."""
    seconds = {}
    exact_gp("more", steps=2)(draw("1.0", 0, 250).train)  # the first call is slow
    for rows in (250, 500) if quick else (500, 1_000, 2_000):
        train_rows = draw("1.0", 0, rows).train
        times = []
        for steps in (2, 10):
            start = time.perf_counter()
            exact_gp("more", steps=steps)(train_rows)
            times.append(time.perf_counter() - start)
        seconds[str(rows)] = (times[1] - times[0]) / 8
    return seconds
