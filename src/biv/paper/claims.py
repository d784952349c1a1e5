"""The paper's twenty claims, each as comparisons of runs.

Which runs are compared, and what is claimed of them, stands here; what makes a comparison hold or
fail stands in `verdicts`. Both were written before the runs were made.
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

LEARNING_RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of plain SGD, claim 19
LEVELS = (0.01, 0.1, 10.0)  # mean noises over μ_P beside 1, claim 19
QUIET_SHARE = 0.1  # of the mean noise, in the quiet half of the day, claim 20


def claims(dataset: str, preset: Preset) -> dict[int, Claim]:
    """All that can be put to the test on a data set, by number."""
    grid = _Lines(dataset, preset)
    made = [Claim(n, says, tuple(parts(grid))) for n, (says, parts) in enumerate(_CLAIMS, start=1)]
    return {claim.number: claim for claim in made if claim.parts}


class _Lines(Grid):
    """The grid, with short names for what is compared again and again."""

    def lowest(self, noise: Noise, loss: Loss) -> Lowest:
        return Lowest(self.line("", noise, loss))

    def advantage(self, noise: Noise) -> Quotient:
        """BIV over L2: the smaller, the greater."""
        return Quotient(self.lowest(noise, BIV), self.lowest(noise, L2))

    def sized(self, loss: Loss, size: int) -> Lowest:
        return Lowest(self.batches("", gamma(1.0), loss, size))

    def sgd(self, level: float, loss: Loss) -> tuple[Line, ...]:
        """Plain SGD at every learning rate."""
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
        what = f"L2: {label} / Gamma α=1"
        yield Contrast(what, "equal", grid.lowest(noise, L2), grid.lowest(gamma(1.0), L2))


def _noise_doubles(grid: _Lines) -> Parts:
    """The paper chose μ_P so that the lowest L2 loss is doubled; the noise of its own figure."""
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
    """No cutoff of the paper's table is the best at both ends: each is beaten at one of them.

    By those that the paper has as the best: C=μ at α=1, and C=μ/4 at α=0.25.
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
        what = f"{label}: ε={EPSILON} / ε=0"
        yield Contrast(what, "below", Lowest(first), Lowest(second))
        what = f"{label}: variability at ε={EPSILON} / at ε=0"
        yield Contrast(what, "below", Variability(first), Variability(second))
    for epsilon, claimed in ((0.0, "below"), (EPSILON, "equal")):
        first, second = line(epsilon, normalised=True), line(epsilon, normalised=False)
        what = f"ε={epsilon:g}: normalised / not"
        yield Contrast(what, claimed, Lowest(first), Lowest(second))


def _batch_advantage(grid: _Lines) -> Parts:
    for size in BATCH_SIZES:
        yield Contrast(
            f"batches of {size}: BIV / L2", "below", grid.sized(BIV, size), grid.sized(L2, size)
        )


def _small_batches(grid: _Lines) -> Parts:
    largest = BATCH_SIZES[-1]
    for (label, loss), size in product((("BIV", BIV), ("L2", L2)), BATCH_SIZES[:-1]):
        what = f"{label}: batches of {size} / of {largest}"
        yield Contrast(what, "above", grid.sized(loss, size), grid.sized(loss, largest))


def _misjudged(grid: _Lines) -> Parts:
    told = grid.lowest(gamma(1.0), BIV)
    for d_v, squared, claimed in (
        (0.5, False, "equal"),
        (1.0, False, "equal"),
        (2.0, False, "above"),
        (2.0, True, "shown"),
    ):
        noise = replace(gamma(1.0), disturbance=d_v, squared_reading=squared)
        what = f"D_v={d_v:g}{', other reading' if squared else ''} / D_v=0"
        yield Contrast(what, claimed, grid.lowest(noise, BIV), told)


def _more_rows(grid: _Lines) -> Parts:
    run = grid.truth.run
    doubled = replace(run, train_rows=2 * run.train_rows)
    if doubled.train_rows + doubled.test_rows <= ROWS[run.dataset].all:
        what = f"GT: {run.train_rows:,} rows / {doubled.train_rows:,} rows"
        yield Contrast(what, "equal", Lowest(grid.truth), Lowest(Line("", doubled)))


def _faster(grid: _Lines) -> Parts:
    for alpha in LOW_ALPHAS:
        biv, plain = (grid.line("", gamma(alpha), loss) for loss in (BIV, L2))
        yield Contrast(
            f"α={alpha:g}: steps of BIV to L2's minimum / steps of L2",
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
    """With the learning rate that is best at μ_P, against the best in hindsight at each noise.

    What normalisation is to keep usable. How it is without is shown beside.
    """
    losses = (
        ("normalised", BIV, "equal"),
        ("not normalised", Loss("iv", epsilon=EPSILON), "shown"),
    )
    for (label, loss, claimed), level in product(losses, LEVELS):
        here, at_mean = grid.sgd(level, loss), grid.sgd(1.0, loss)
        what = f"{label}, noise {level:g}μ: the rate best at μ / the rate best here"
        yield Contrast(what, claimed, Tuned(here, at_mean), Tuned(here, here))
    for label, loss, _ in losses:
        options = tuple((f"{level:g}μ", grid.sgd(level, loss)) for level in sorted((1.0, *LEVELS)))
        yield Choices(f"{label}: best learning rates", options)


def _regions(grid: _Lines) -> Parts:
    """Doubly penalised: BIV is worse where labels are noisy than no weights are.

    The rest is shown: IV, a cutoff (which leaves all noisy hours out), and the quiet hours. Faces
    have no hours.
    """
    if grid.blank.pixels is not None:
        return
    noise = Noise("hours", QUIET_SHARE)
    rivals = {"BIV": BIV, "IV": IV, "C=μ": cutoff(1.0)}
    for region, claimed in (("noisy", "above"), ("quiet", "shown")):
        plain = grid.region(region, noise, L2)
        for label, loss in rivals.items():
            what = f"{region} hours: {label} / L2"
            decides = claimed if loss == BIV else "shown"
            yield Contrast(what, decides, grid.region(region, noise, loss), plain)
        truth = grid.region(region, CLEAN, L2)
        yield Contrast(f"{region} hours: L2 / GT", "shown", plain, truth)


_CLAIMS: tuple[tuple[str, Callable[[_Lines], Parts]], ...] = (
    ("L2 depends on P(σ²) only through its mean", _only_the_mean),
    ("Noise of mean μ_P doubles the lowest L2 loss", _noise_doubles),
    (
        "Binary noise: BIV is as good as the cutoff between, both better than L2; p=0.9 as GT",
        _binary,
    ),
    ("Gamma α≤1: BIV is better than L2 and than every cutoff", _gamma),
    ("The best cutoff changes with α", _best_cutoff),
    ("BIV's advantage grows as α falls", _grows),
    ("For α>1 it shrinks", _shrinks),
    ("Uniform noise: nothing to gain at V=0, a little at V_max/2, clearly at V_max", _uniform),
    ("Uniform noise: every cutoff below b is worse than L2", _uniform_cutoffs),
    ("IV worsens as α falls, and diverges at 0.25", _iv),
    ("ε: best near 0.05, good over 0.01–0.1, L2 when it is large", _epsilon),
    (
        "ε lowers the loss and the variability of training; normalisation matters at ε=0, hardly "
        "at ε>0 with Adam",
        _ablation,
    ),
    ("Batches of 16 to 256 leave the advantage", _batch_advantage),
    ("Smaller batches reach a higher minimum, for L2 and BIV alike", _small_batches),
    ("Misjudged variances: D_v≤1 is harmless, D_v=2 hurts", _misjudged),
    ("Twice as many clean rows are hardly better", _more_rows),
    ("BIV learns faster: fewer steps to L2's own minimum", _faster),
    ("The gain under any uniform noise is smaller than under Gamma α≤1", _uniform_gain),
    ("Plain SGD: normalisation keeps the learning rate usable whatever the noise", _sgd),
    ("Noise that depends on the input: weights penalise the noisy region doubly", _regions),
)
COUNT = len(_CLAIMS)
