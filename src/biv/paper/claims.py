"""The paper's twenty claims, each as a list of comparisons between runs.

This module defines which runs are compared and what is claimed about them. The rule that decides a
comparison is in `verdicts`, and was fixed before the runs. The comparisons of claims 3, 5, 15, 19
and 20 were changed during the runs, before any verdict was known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product

from biv.paper.artefacts import BATCH_SIZES, FIGURE_CUTOFFS, LOW_ALPHAS, TABLE_CUTOFFS
from biv.paper.claim import Choices, Claim, Contrast, Diverges, Part
from biv.paper.grid import BIV, CLEAN, EPSILON, IV, L2, Grid, Line, cutoff, cutoff_label, gamma
from biv.paper.measures import (
    Lowest,
    Quotient,
    StepsTo,
    Times,
    Tuned,
    Variability,
)
from biv.paper.presets import ROWS, Preset
from biv.paper.spec import Loss, Noise

LEARNING_RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # learning rates of plain SGD in claim 19
LEVELS = (0.01, 0.1, 10.0)  # mean variances of claim 19 as multiples of μ_P, in addition to 1
QUIET_LEVEL = 0.1  # variance in the quiet hours of claim 20, as a fraction of the mean variance


def claims(dataset: str, preset: Preset) -> dict[int, Claim]:
    """Return the claims that can be tested on a data set, by number."""
    grid = _Lines(dataset, preset)
    every = [
        Claim(number, statement, tuple(parts(grid)))
        for number, (statement, parts) in enumerate(_CLAIMS, start=1)
    ]
    return {claim.number: claim for claim in every if claim.parts}


class _Lines(Grid):
    """Grid with short names for the measures that several claims compare."""

    def lowest(self, noise: Noise, loss: Loss) -> Lowest:
        return Lowest(self.line("", noise, loss))

    def advantage(self, noise: Noise) -> Quotient:
        """Return the lowest loss of BIV over that of L2; a smaller ratio is a larger advantage."""
        return Quotient(self.lowest(noise, BIV), self.lowest(noise, L2))

    def sized(self, loss: Loss, size: int) -> Lowest:
        return Lowest(self.batches("", gamma(1.0), loss, size))

    def sgd(self, level: float, loss: Loss) -> tuple[Line, ...]:
        """Return one line per learning rate, trained with plain SGD."""
        run = self.line("", Noise("gamma", 1.0, level=level), loss).run
        return tuple(
            Line("", replace(run, optimizer="sgd", learning_rate=rate)) for rate in LEARNING_RATES
        )

    def region(self, name: str, noise: Noise, loss: Loss) -> Lowest:
        return Lowest(Line("", replace(self.line("", noise, loss).run, test_region=name)))


Parts = Iterable[Part]


def _only_the_mean(grid: _Lines) -> Parts:
    noises = {
        "Gamma α=0.25": gamma(0.25),
        "uniform V=0": Noise("uniform", 0.0),
        "uniform V=V_max": Noise("uniform", 1.0),
        "binary p=0.5": Noise("binary", 0.5),
    }
    for label, noise in noises.items():
        part = f"L2: {label} / Gamma α=1"
        yield Contrast(part, "equal", grid.lowest(noise, L2), grid.lowest(gamma(1.0), L2))


def _noise_doubles(grid: _Lines) -> Parts:
    """Compare L2 under Gamma α=1 with twice GT; the paper chose μ_P to double the L2 loss."""
    doubled = Times(2.0, Lowest(grid.truth))
    yield Contrast("Gamma α=1: L2 / 2 GT", "equal", grid.lowest(gamma(1.0), L2), doubled)


def _binary(grid: _Lines) -> Parts:
    between = Loss("cutoff", threshold=1.0, raw_threshold=True)
    for p in (0.3, 0.5, 0.7, 0.9):
        noise = Noise("binary", p)
        biv, cut, plain = (grid.lowest(noise, loss) for loss in (BIV, between, L2))
        yield Contrast(f"p={p:g}: BIV / C=1", "equal", biv, cut)
        yield Contrast(f"p={p:g}: BIV / L2", "below", biv, plain)
        yield Contrast(f"p={p:g}: C=1 / L2", "below", cut, plain)
    for label, loss in (("BIV", BIV), ("C=1", between)):
        clean = grid.lowest(Noise("binary", 0.9), loss)
        yield Contrast(f"p=0.9: {label} / GT", "equal", clean, Lowest(grid.truth))


def _gamma(grid: _Lines) -> Parts:
    for alpha in LOW_ALPHAS:
        biv = grid.lowest(gamma(alpha), BIV)
        rivals = {"L2": L2} | {
            cutoff_label(c): cutoff(c)
            for c in sorted({*TABLE_CUTOFFS, *(FIGURE_CUTOFFS if alpha == 1.0 else ())})
        }
        for label, loss in rivals.items():
            rival = grid.lowest(gamma(alpha), loss)
            yield Contrast(f"α={alpha:g}: BIV / {label}", "below", biv, rival)


def _best_cutoff(grid: _Lines) -> Parts:
    """Check that no cutoff of the paper's table is the best at both α=1 and α=0.25.

    For each cutoff there is an α at which it is worse than the paper's best cutoff for that α: C=μ
    at α=1 and C=μ/4 at α=0.25.
    """
    beaten = ((1.0, 1.0, 1 / 20), (1.0, 1.0, 1 / 4), (0.25, 1 / 4, 1.0), (0.25, 1 / 4, 5.0))
    for alpha, best, other in beaten:
        yield Contrast(
            f"α={alpha:g}: {cutoff_label(best)} / {cutoff_label(other)}",
            "below",
            grid.lowest(gamma(alpha), cutoff(best)),
            grid.lowest(gamma(alpha), cutoff(other)),
        )


def _grows(grid: _Lines) -> Parts:
    for lower, higher in ((0.5, 1.0), (0.25, 0.5)):
        yield Contrast(
            f"BIV/L2 at α={lower:g} / at α={higher:g}",
            "below",
            grid.advantage(gamma(lower)),
            grid.advantage(gamma(higher)),
        )


def _shrinks(grid: _Lines) -> Parts:
    for alpha in (2.0, 5.0, 10.0):
        yield Contrast(
            f"BIV/L2 at α={alpha:g} / at α=1",
            "above",
            grid.advantage(gamma(alpha)),
            grid.advantage(gamma(1.0)),
        )


def _uniform(grid: _Lines) -> Parts:
    spreads = {"V=0": (0.0, "equal"), "V=V_max/2": (0.5, "below"), "V=V_max": (1.0, "below")}
    for label, (spread, claimed) in spreads.items():
        noise = Noise("uniform", spread)
        yield Contrast(
            f"{label}: BIV / L2", claimed, grid.lowest(noise, BIV), grid.lowest(noise, L2)
        )
    yield Contrast(
        "BIV/L2 at V_max / at V_max/2",
        "below",
        grid.advantage(Noise("uniform", 1.0)),
        grid.advantage(Noise("uniform", 0.5)),
    )


def _uniform_cutoffs(grid: _Lines) -> Parts:
    for (label, spread), c in product((("V_max", 1.0), ("V_max/2", 0.5)), (0.5, 1.0, 1.5)):
        noise = Noise("uniform", spread)
        yield Contrast(
            f"V={label}: {cutoff_label(c)} / L2",
            "above",
            grid.lowest(noise, cutoff(c)),
            grid.lowest(noise, L2),
        )


def _iv(grid: _Lines) -> Parts:
    for lower, higher in ((0.5, 1.0), (0.25, 0.5)):
        yield Contrast(
            f"IV: α={lower:g} / α={higher:g}",
            "above",
            grid.lowest(gamma(lower), IV),
            grid.lowest(gamma(higher), IV),
        )
    yield Diverges("IV diverges at α=0.25", grid.line("", gamma(0.25), IV))


def _epsilon(grid: _Lines) -> Parts:
    def at(epsilon: float) -> Lowest:
        return grid.lowest(gamma(1.0), Loss("biv", epsilon=epsilon))

    for other in (0.0, 0.001, 0.5, 1.0):
        yield Contrast(f"ε={EPSILON} / ε={other:g}", "below", at(EPSILON), at(other))
    for other in (0.01, 0.02, 0.1):
        yield Contrast(f"ε={other:g} / ε={EPSILON}", "equal", at(other), at(EPSILON))
    for good in (0.01, 0.02, EPSILON, 0.1):
        yield Contrast(f"ε={good:g} / L2", "below", at(good), grid.lowest(gamma(1.0), L2))
    noise = Noise("binary", 0.5)
    large = grid.lowest(noise, Loss("biv", epsilon=100.0))
    yield Contrast("binary p=0.5: ε=100 / L2", "equal", large, grid.lowest(noise, L2))


def _ablation(grid: _Lines) -> Parts:
    def line(epsilon: float, *, normalised: bool) -> Line:
        return grid.line("", gamma(1.0), Loss("biv" if normalised else "iv", epsilon=epsilon))

    for label, normalised in (("normalised", True), ("not normalised", False)):
        first, second = line(EPSILON, normalised=normalised), line(0.0, normalised=normalised)
        part = f"{label}: ε={EPSILON} / ε=0"
        yield Contrast(part, "below", Lowest(first), Lowest(second))
        part = f"{label}: variability at ε={EPSILON} / at ε=0"
        yield Contrast(part, "below", Variability(first), Variability(second))
    for epsilon, claimed in ((0.0, "below"), (EPSILON, "equal")):
        first, second = line(epsilon, normalised=True), line(epsilon, normalised=False)
        part = f"ε={epsilon:g}: normalised / not normalised"
        yield Contrast(part, claimed, Lowest(first), Lowest(second))


def _batch_advantage(grid: _Lines) -> Parts:
    for size in BATCH_SIZES:
        yield Contrast(
            f"batch size {size}: BIV / L2", "below", grid.sized(BIV, size), grid.sized(L2, size)
        )


def _small_batches(grid: _Lines) -> Parts:
    largest = BATCH_SIZES[-1]
    for (label, loss), size in product((("BIV", BIV), ("L2", L2)), BATCH_SIZES[:-1]):
        part = f"{label}: batch size {size} / {largest}"
        yield Contrast(part, "above", grid.sized(loss, size), grid.sized(loss, largest))


def _wrong_variances(grid: _Lines) -> Parts:
    correct = grid.lowest(gamma(1.0), BIV)
    for d_v, squared, claimed in (
        (0.5, False, "equal"),
        (1.0, False, "equal"),
        (2.0, False, "above"),
        (2.0, True, "shown"),
    ):
        noise = replace(gamma(1.0), disturbance=d_v, squared_reading=squared)
        part = f"D_v={d_v:g}{', other reading' if squared else ''} / D_v=0"
        yield Contrast(part, claimed, grid.lowest(noise, BIV), correct)


def _more_rows(grid: _Lines) -> Parts:
    run = grid.truth.run
    doubled = replace(run, train_rows=2 * run.train_rows)
    if doubled.train_rows + doubled.test_rows <= ROWS[run.dataset].all:
        part = f"GT: {run.train_rows:,} rows / {doubled.train_rows:,} rows"
        yield Contrast(part, "equal", Lowest(grid.truth), Lowest(Line("", doubled)))


def _faster(grid: _Lines) -> Parts:
    for alpha in LOW_ALPHAS:
        biv, plain = (grid.line("", gamma(alpha), loss) for loss in (BIV, L2))
        yield Contrast(
            f"α={alpha:g}: steps to L2's lowest loss, BIV / L2",
            "below",
            StepsTo(biv, plain),
            StepsTo(plain, plain),
        )


def _uniform_gain(grid: _Lines) -> Parts:
    spreads = {"V=0": 0.0, "V=V_max/2": 0.5, "V=V_max": 1.0}
    for (label, spread), alpha in product(spreads.items(), LOW_ALPHAS):
        yield Contrast(
            f"BIV/L2 under uniform {label} / under Gamma α={alpha:g}",
            "above",
            grid.advantage(Noise("uniform", spread)),
            grid.advantage(gamma(alpha)),
        )


def _sgd(grid: _Lines) -> Parts:
    """Compare the learning rate that is best at μ_P with the best one at each noise level.

    With normalisation the two must be equally good. The same ratios without normalisation are shown
    and have no verdict.
    """
    losses = (
        ("normalised", BIV, "equal"),
        ("not normalised", Loss("iv", epsilon=EPSILON), "shown"),
    )
    for (label, loss, claimed), level in product(losses, LEVELS):
        here, at_mean = grid.sgd(level, loss), grid.sgd(1.0, loss)
        part = f"{label}, noise {level:g}μ: best rate at μ / best rate at {level:g}μ"
        yield Contrast(part, claimed, Tuned(here, at_mean), Tuned(here, here))
    for label, loss, _ in losses:
        options = tuple((f"{level:g}μ", grid.sgd(level, loss)) for level in sorted((1.0, *LEVELS)))
        yield Choices(f"{label}: best learning rates", options)


def _regions(grid: _Lines) -> Parts:
    """Test whether BIV is worse than L2 in the noisy hours, which would be a double penalty.

    IV, a cutoff (which drops all noisy hours) and the quiet hours are shown without a verdict. The
    claim cannot be tested on faces, which have no hour.
    """
    if grid.template_run.pixels is not None:
        return
    noise = Noise("hours", QUIET_LEVEL)
    rivals = {"BIV": BIV, "IV": IV, "C=μ": cutoff(1.0)}
    for region, claimed in (("noisy", "above"), ("quiet", "shown")):
        plain = grid.region(region, noise, L2)
        for label, loss in rivals.items():
            part = f"{region} hours: {label} / L2"
            part_claims = claimed if loss == BIV else "shown"
            yield Contrast(part, part_claims, grid.region(region, noise, loss), plain)
        truth = grid.region(region, CLEAN, L2)
        yield Contrast(f"{region} hours: L2 / GT", "shown", plain, truth)


_CLAIMS: tuple[tuple[str, Callable[[_Lines], Parts]], ...] = (
    ("The lowest L2 loss depends on P(σ²) only through its mean", _only_the_mean),
    ("Noise of mean variance μ_P doubles the lowest L2 loss", _noise_doubles),
    (
        "Under binary noise, BIV is as good as a cutoff between the two regimes; both are better "
        "than L2, and as good as GT at p=0.9",
        _binary,
    ),
    ("Under Gamma noise with α≤1, BIV is better than L2 and than every cutoff", _gamma),
    ("The best cutoff changes with α", _best_cutoff),
    ("BIV's advantage over L2 grows as α falls", _grows),
    ("BIV's advantage over L2 shrinks as α grows beyond 1", _shrinks),
    (
        "Under uniform noise, BIV gains nothing at V=0, a little at V_max/2 and clearly at V_max",
        _uniform,
    ),
    (
        "Under uniform noise, every cutoff below the upper bound of σ² is worse than L2",
        _uniform_cutoffs,
    ),
    ("IV becomes worse as α falls, and diverges at α=0.25", _iv),
    ("ε is best near 0.05 and good from 0.01 to 0.1; a large ε makes BIV equal to L2", _epsilon),
    (
        "ε lowers the test loss and the variability of the training loss; with Adam, normalisation "
        "matters at ε=0 and hardly at ε>0",
        _ablation,
    ),
    ("BIV keeps its advantage over L2 at batch sizes from 16 to 256", _batch_advantage),
    ("Smaller batches have a higher lowest loss, for L2 and for BIV", _small_batches),
    ("Wrong variances do no harm up to D_v=1, and hurt at D_v=2", _wrong_variances),
    ("Twice as many clean training rows hardly lower the loss", _more_rows),
    ("BIV learns faster: it reaches L2's lowest loss in fewer steps than L2", _faster),
    ("BIV gains less under any uniform noise than under Gamma noise with α≤1", _uniform_gain),
    (
        "With plain SGD, normalisation keeps one learning rate usable at every noise level",
        _sgd,
    ),
    ("Where noise depends on the input, weights penalise the noisy region twice", _regions),
)
COUNT = len(_CLAIMS)
