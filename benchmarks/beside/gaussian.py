"""GPyTorch: exact and sparse Gaussian processes with known noise."""

import time

import torch
import torch.nn.functional as F

from beside.data import AMYLOID, FEW, Unit, clock, draw, first

GP_STEPS, GP_RATE = 60, 0.3  # chosen by the marginal likelihood of other draws
INDUCING, SVGP_EPOCHS, SVGP_BATCH, SVGP_RATE = 300, 40, 512, 0.02


def gp_class():
    """An exact GP and a sparse one; classes are made here as GPyTorch may be missing."""
    import gpytorch

    def covariance(features):
        # A length scale a column, for some columns; one for all of 882.
        own = features if features < 100 else None
        return gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5, ard_num_dims=own))

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


def tensors(rows, unit):
    """Features, labels and variances in double precision."""
    return tuple(
        torch.as_tensor(column, dtype=torch.float64) for column in (rows.x, unit.y, unit.variance)
    )


def likelihood_of(kind, variance):
    """Of a GP: σ² known; σ² known and more of it learned; or one noise learned for all."""
    import gpytorch

    if kind == "unused":
        return gpytorch.likelihoods.GaussianLikelihood()
    return gpytorch.likelihoods.FixedNoiseGaussianLikelihood(
        variance, learn_additional_noise=kind == "more"
    )


def exact_gp(kind, *, conditioned_on=None, steps=GP_STEPS):
    """An exact GP whose hyperparameters are learned from the rows given.

    Then it may be conditioned on more rows than that, which takes one factorisation.
    """
    import gpytorch

    def fit(rows):
        exact, _ = gp_class()
        unit = Unit.of(rows)
        x, y, variance = tensors(rows, unit)
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
            scaled = Unit(
                unit.scaler,
                unit.scaler.label(conditioned_on.y),
                unit.scaler.variance(conditioned_on.variance),
            )
            x, y, variance = tensors(conditioned_on, scaled)
            model.set_train_data(x, y, strict=False)
            if kind != "unused":
                likelihood.noise = variance
        model.eval()
        extra = likelihood.second_noise.item() if kind == "more" else 0.0
        with torch.no_grad(), gpytorch.settings.max_cholesky_size(1 << 20):
            model(x[:1])  # factorises, which is part of the fit

        def predict(new):
            with torch.no_grad(), gpytorch.settings.max_cholesky_size(1 << 20):
                latent = model(torch.as_tensor(new, dtype=torch.float64))
                spread = latent.variance + extra
            return unit.raw(latent.mean, spread.sqrt())

        return predict

    return fit


def sparse_gp(seed, epochs):
    """A variational GP with inducing points, in batches, on all rows."""
    import gpytorch

    def fit(rows):
        _, sparse = gp_class()
        unit = Unit.of(rows)
        x, y, variance = tensors(rows, unit)
        # Where batches bring their noise, GPyTorch's own additional noise is not added: see
        # `gp_noise`. So it is added here.
        likelihood = likelihood_of("known", variance).double()
        extra = torch.zeros((), dtype=torch.float64, requires_grad=True)
        # Its first mean is drawn from torch's global generator: the fourth digit of its error
        # differs from run to run.
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
            return unit.raw(latent.mean, spread.sqrt())

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
    """GPs on all rows."""
    drawn, steps = draw(name, seed, 500 if quick else None), 2 if quick else GP_STEPS
    few = drawn._replace(train=first(drawn.train, 200 if quick else FEW))
    whole = exact_gp("more", conditioned_on=drawn.train, steps=steps)
    found = {GP_ALL: clock(whole, few)}
    if name != AMYLOID:  # 882 columns of inducing points would take minutes
        found[GP_SPARSE] = clock(sparse_gp(seed, 1 if quick else SVGP_EPOCHS), drawn)
    return found


def gp_noise():
    """The variance of a label by a likelihood that is given σ² = 0.5 and has learned 0.2 more."""
    import gpytorch

    likelihood = likelihood_of("more", torch.full((3,), 0.5)).double()
    likelihood.second_noise = 0.2
    latent = gpytorch.distributions.MultivariateNormal(
        torch.zeros(3).double(), torch.eye(3).double()
    )
    with torch.no_grad():
        found = {
            "as made": likelihood(latent, [torch.zeros(3, 1)]),
            "noise=": likelihood(latent, noise=torch.full((3,), 0.5).double()),
        }
        return {how: float(label.variance[0]) - 1 for how, label in found.items()}


def gp_scaling(quick):
    """Seconds of a step of an exact GP's training, by the number of rows."""
    found = {}
    exact_gp("more", steps=2)(draw("1.0", 0, 250).train)  # what is slow the first time only
    for rows in (250, 500) if quick else (500, 1_000, 2_000):
        train_rows = draw("1.0", 0, rows).train
        times = []
        for steps in (2, 10):
            start = time.perf_counter()
            exact_gp("more", steps=steps)(train_rows)
            times.append(time.perf_counter() - start)
        found[str(rows)] = (times[1] - times[0]) / 8
    return found
