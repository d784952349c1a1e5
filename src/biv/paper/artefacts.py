"""The paper's table and fifteen figures, each as a grid of runs.

NOTE[DIFF] 17: the paper's images are not part of its text. Where the text does not give the values
of a grid, the values here are our own choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from biv._utils.messages import shortened
from biv.paper.grid import (
    BIV,
    EPSILON,
    IV,
    L2,
    Artefact,
    Grid,
    Line,
    LinePanel,
    cutoff,
    cutoff_label,
    gamma,
)
from biv.paper.presets import Preset
from biv.paper.spec import Loss, Noise

EPSILONS = (0.0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
LARGE_EPSILONS = (10.0, 100.0)
LOW_ALPHAS = (1.0, 0.5, 0.25)
TABLE_CUTOFFS = (1 / 20, 1 / 4, 1.0, 5.0)
FIGURE_CUTOFFS = (1 / 4, 1 / 2, 1.0, 2.0, 5.0)
BATCH_SIZES = (16, 32, 64, 128, 256)
V_MAX = "V is the variance of P(σ²), which is at most V_max = μ²/3 for a uniform distribution."


def artefacts(dataset: str, preset: Preset) -> dict[str, Artefact]:
    """Return the table and the figures by name, in the paper's order."""
    grid = Grid(dataset, preset)
    every = [_table(grid), *(figure(grid) for figure in _FIGURES)]
    return {artefact.name: artefact for artefact in every}


def find(name: str, available: dict[str, Artefact]) -> Artefact:
    """Return an artefact by its name, its number or the paper's own label.

    Parameters
    ----------
    name : str
        For example "table1", "fig03", "fig3", "3" or "Gamma_BIV_CO", in any case.
    available : dict of str to Artefact
        Artefacts to choose from, by name.

    Raises
    ------
    ValueError
        No artefact has this name.
    """
    requested = name.lower()
    number = requested.removeprefix("fig")
    if number.isdigit():
        requested = f"fig{int(number):02d}"
    for artefact in available.values():
        if requested in (artefact.name, artefact.label.lower()):
            return artefact
    names = ", ".join(f"{a.name} ({a.label})" for a in available.values())
    raise ValueError(f"unknown table or figure {shortened(name)}; choose from {names}")


def _cutoffs(grid: Grid, noise: Noise, multiples: Sequence[float]) -> list[Line]:
    return [grid.line(cutoff_label(c), noise, cutoff(c)) for c in multiples]


def _low_alphas(grid: Grid, methods: dict[str, Loss]) -> tuple[LinePanel, ...]:
    """Return one panel per α ≤ 1, with the cutoffs, the other methods and GT."""

    def panel(alpha: float) -> LinePanel:
        lines = _cutoffs(grid, gamma(alpha), TABLE_CUTOFFS)
        lines += [grid.line(label, gamma(alpha), loss) for label, loss in methods.items()]
        return LinePanel(f"α={alpha:g}", (*lines, grid.truth))

    return tuple(panel(alpha) for alpha in LOW_ALPHAS)


def _table(grid: Grid) -> Artefact:
    panels = _low_alphas(grid, {"L2": L2, "BIV": BIV, "IV": IV})
    return Artefact(
        "table1", "GammaResults", "lowest test losses under Gamma noise", panels, "table"
    )


def _l2_var(grid: Grid) -> Artefact:
    noises = {
        "Gamma α=0.25": gamma(0.25),
        "Gamma α=1": gamma(1.0),
        "uniform V=0": Noise("uniform", 0.0),
        "uniform V=V_max": Noise("uniform", 1.0),
        "binary p=0.5": Noise("binary", 0.5),
    }
    lines = [grid.line(label, noise, L2) for label, noise in noises.items()]
    panel = LinePanel("", (*lines, grid.truth))
    return Artefact(
        "fig01", "L2Var", "L2 under five noise distributions of equal mean", (panel,), terms=V_MAX
    )


def _binary(grid: Grid) -> Artefact:
    def panel(p: float) -> LinePanel:
        noise = Noise("binary", p)
        losses = {"L2": L2, "BIV": BIV, "C=1": Loss("cutoff", threshold=1.0, raw_threshold=True)}
        lines = [grid.line(label, noise, loss) for label, loss in losses.items()]
        return LinePanel(f"p={p:g}", (*lines, grid.truth))

    title = "BIV and a cutoff under binary uniform noise"
    panels = tuple(panel(p) for p in (0.3, 0.5, 0.7, 0.9))
    terms = (
        "A fraction p of the labels has σ² ~ U(0, 1) in raw label units; the others share one "
        "large σ². The cutoff C=1 lies between the two."
    )
    return Artefact("fig02", "BU_BIV_CO", title, panels, terms=terms)


def _gamma_cutoffs(grid: Grid) -> Artefact:
    noise = gamma(1.0)
    lines = [grid.line("L2", noise, L2), grid.line("BIV", noise, BIV)]
    lines += _cutoffs(grid, noise, FIGURE_CUTOFFS)
    title = "BIV, L2 and five cutoffs under Gamma noise, α=1"
    return Artefact("fig03", "Gamma_BIV_CO", title, (LinePanel("", (*lines, grid.truth)),))


def _ablation_lines(grid: Grid) -> tuple[Line, ...]:
    losses = {
        "ε=0.05, normalised (BIV)": BIV,
        "ε=0.05, not normalised": Loss("iv", epsilon=EPSILON),
        "ε=0, normalised": Loss("biv", epsilon=0.0),
        "ε=0, not normalised (IV)": IV,
    }
    return tuple(grid.line(label, gamma(1.0), loss) for label, loss in losses.items())


def _ablation_test(grid: Grid) -> Artefact:
    panel = LinePanel("", (*_ablation_lines(grid), grid.line("L2", gamma(1.0), L2)))
    title = "test loss with and without ε and the normalisation, Gamma α=1"
    return Artefact("fig04", "AblationTest", title, (panel,))


def _ablation_train(grid: Grid) -> Artefact:
    panels = tuple(LinePanel(line.label, (line,)) for line in _ablation_lines(grid))
    title = "training loss with and without ε and the normalisation, Gamma α=1"
    terms = "The vertical scale differs between panels."
    return Artefact("fig05", "AblationTrain", title, panels, quantity="train_loss", terms=terms)


def _epsilons(grid: Grid, noise: Noise, epsilons: Sequence[float]) -> tuple[LinePanel, ...]:
    lines = [grid.line(f"ε={e:g}", noise, Loss("biv", epsilon=e)) for e in epsilons]
    return (LinePanel("", (*lines, grid.line("L2", noise, L2))),)


def _epsilon_faces(grid: Grid) -> Artefact:
    panels = _epsilons(grid, gamma(1.0), EPSILONS)
    return Artefact("fig06", "epsilonUTKF", "BIV with different ε under Gamma noise, α=1", panels)


def _epsilon_bike(grid: Grid) -> Artefact:
    panels = _epsilons(grid, gamma(1.0), EPSILONS)
    return Artefact("fig07", "epsilonBike", "BIV with different ε under Gamma noise, α=1", panels)


def _epsilon_binary(grid: Grid) -> Artefact:
    panels = _epsilons(grid, Noise("binary", 0.5), (*EPSILONS, *LARGE_EPSILONS))
    return Artefact(
        "fig08",
        "epsilonBinary",
        "BIV with different ε under binary uniform noise, p=0.5 (half of the labels almost clean)",
        panels,
    )


def _both(grid: Grid, noise: Noise, title: str) -> LinePanel:
    return LinePanel(title, (grid.line("L2", noise, L2), grid.line("BIV", noise, BIV), grid.truth))


def _gamma_high(grid: Grid) -> Artefact:
    panels = tuple(_both(grid, gamma(alpha), f"α={alpha:g}") for alpha in (1.0, 2.0, 5.0, 10.0))
    return Artefact("fig09", "GammaHigh", "BIV and L2 under Gamma noise, α from 1 to 10", panels)


def _uniform(grid: Grid) -> Artefact:
    spreads = {"V=0": 0.0, "V=V_max/2": 0.5, "V=V_max": 1.0}
    panels = tuple(_both(grid, Noise("uniform", v), title) for title, v in spreads.items())
    title = "BIV and L2 under uniform noise of increasing spread"
    return Artefact("fig10", "Uniform_both", title, panels, terms=V_MAX)


def _uniform_cutoffs(grid: Grid) -> Artefact:
    def panel(title: str, spread: float) -> LinePanel:
        noise = Noise("uniform", spread)
        lines = [grid.line("L2", noise, L2), grid.line("BIV", noise, BIV)]
        lines += _cutoffs(grid, noise, (0.5, 1.0, 1.5))
        return LinePanel(title, tuple(lines))

    panels = (panel("V=V_max", 1.0), panel("V=V_max/2", 0.5))
    title = "BIV, L2 and three cutoffs under uniform noise"
    return Artefact("fig11", "UniformBikeCutoff", title, panels, terms=V_MAX)


def _low_alpha_bike(grid: Grid) -> Artefact:
    panels = _low_alphas(grid, {"L2": L2, "BIV": BIV})
    return Artefact(
        "fig12", "GammaBikeLowAlpha", "BIV, L2 and four cutoffs under Gamma noise, α ≤ 1", panels
    )


def _low_alpha_faces(grid: Grid) -> Artefact:
    panels = _low_alphas(grid, {"L2": L2, "BIV": BIV})
    return Artefact(
        "fig13", "GammaUTKFLowAlpha", "BIV, L2 and four cutoffs under Gamma noise, α ≤ 1", panels
    )


def _batch_size(grid: Grid) -> Artefact:
    noise = gamma(1.0)
    panels = tuple(
        LinePanel(label, tuple(grid.batches(f"batch {n}", noise, loss, n) for n in BATCH_SIZES))
        for label, loss in (("BIV", BIV), ("L2", L2))
    )
    return Artefact(
        "fig14", "batchSize", "BIV and L2 at batch sizes from 16 to 256, Gamma α=1", panels
    )


def _variance_noise(grid: Grid) -> Artefact:
    def disturbed(d_v: float, *, squared: bool = False) -> Noise:
        return replace(gamma(1.0), disturbance=d_v, squared_reading=squared)

    lines = [grid.line(f"D_v={d:g}", disturbed(d), BIV) for d in (0.0, 0.5, 1.0, 2.0)]
    lines.append(grid.line("D_v=2, other reading", disturbed(2.0, squared=True), BIV))
    lines.append(grid.line("L2", gamma(1.0), L2))
    title = "BIV with wrong variances, Gamma α=1"
    terms = (
        "BIV receives σ² with an error of standard deviation √D_v·σ²/3 (other reading: D_v·σ²/3). "
        "The noise of the labels has the true σ²."
    )
    return Artefact("fig15", "VarNoise", title, (LinePanel("", tuple(lines)),), terms=terms)


_FIGURES = (
    _l2_var,
    _binary,
    _gamma_cutoffs,
    _ablation_test,
    _ablation_train,
    _epsilon_faces,
    _epsilon_bike,
    _epsilon_binary,
    _gamma_high,
    _uniform,
    _uniform_cutoffs,
    _low_alpha_bike,
    _low_alpha_faces,
    _batch_size,
    _variance_noise,
)
