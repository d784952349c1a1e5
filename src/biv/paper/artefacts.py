"""The paper's table and fifteen figures, each a grid of runs.

NOTE[DIFF] 17: the text of the paper has no images; where it leaves a grid open, the one here is
ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
V_MAX = "V is the variance of P(σ²), V_max = μ²/3 the largest of a uniform one."


def artefacts(dataset: str, preset: Preset) -> dict[str, Artefact]:
    """All sixteen, in the paper's order."""
    grid = Grid(dataset, preset)
    made = [_table(grid), *(make(grid) for make in _FIGURES)]
    return {artefact.name: artefact for artefact in made}


def find(name: str, among: dict[str, Artefact]) -> Artefact:
    """By "table1", "fig03", "fig3", "3" or the paper's own label, whatever the case.

    Raises:
        ValueError: There is none of that name.
    """
    asked = name.lower()
    number = asked.removeprefix("fig")
    if number.isdigit():
        asked = f"fig{int(number):02d}"
    for artefact in among.values():
        if asked in (artefact.name, artefact.label.lower()):
            return artefact
    names = ", ".join(f"{a.name} ({a.label})" for a in among.values())
    raise ValueError(f"an artefact must be one of {names}; got {name!r}")


def _cutoffs(grid: Grid, noise: Noise, multiples: Sequence[float]) -> list[Line]:
    return [grid.line(cutoff_label(c), noise, cutoff(c)) for c in multiples]


def _low_alphas(grid: Grid, methods: dict[str, Loss]) -> tuple[LinePanel, ...]:
    """Cutoffs, other methods and GT for α ≤ 1."""

    def panel(alpha: float) -> LinePanel:
        lines = _cutoffs(grid, gamma(alpha), TABLE_CUTOFFS)
        lines += [grid.line(label, gamma(alpha), loss) for label, loss in methods.items()]
        return LinePanel(f"α={alpha:g}", (*lines, grid.truth))

    return tuple(panel(alpha) for alpha in LOW_ALPHAS)


def _table(grid: Grid) -> Artefact:
    panels = _low_alphas(grid, {"L2": L2, "BIV": BIV, "IV": IV})
    return Artefact("table1", "GammaResults", "test losses under Gamma noise", panels, "table")


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
    return Artefact("fig01", "L2Var", "L2 under noises of one mean", (panel,), terms=V_MAX)


def _binary(grid: Grid) -> Artefact:
    def panel(p: float) -> LinePanel:
        noise = Noise("binary", p)
        losses = {"L2": L2, "BIV": BIV, "C=1": Loss("cutoff", threshold=1.0, raw_threshold=True)}
        lines = [grid.line(label, noise, loss) for label, loss in losses.items()]
        return LinePanel(f"p={p:g}", (*lines, grid.truth))

    shows = "two regimes of noise: BIV beside a cutoff between them"
    panels = tuple(panel(p) for p in (0.3, 0.5, 0.7, 0.9))
    terms = "A share p of the labels has σ² ~ U(0, 1), the others one σ²; C = 1, in raw units."
    return Artefact("fig02", "BU_BIV_CO", shows, panels, terms=terms)


def _gamma_cutoffs(grid: Grid) -> Artefact:
    noise = gamma(1.0)
    lines = [grid.line("L2", noise, L2), grid.line("BIV", noise, BIV)]
    lines += _cutoffs(grid, noise, FIGURE_CUTOFFS)
    shows = "Gamma α=1: BIV, L2 and cutoffs"
    return Artefact("fig03", "Gamma_BIV_CO", shows, (LinePanel("", (*lines, grid.truth)),))


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
    return Artefact("fig04", "AblationTest", "what ε and the normalisation do, Gamma α=1", (panel,))


def _ablation_train(grid: Grid) -> Artefact:
    panels = tuple(LinePanel(line.label, (line,)) for line in _ablation_lines(grid))
    shows = "variation of the training loss with and without ε and the normalisation, Gamma α=1"
    terms = "Scales differ from panel to panel."
    return Artefact("fig05", "AblationTrain", shows, panels, quantity="train_loss", terms=terms)


def _epsilons(grid: Grid, noise: Noise, epsilons: Sequence[float]) -> tuple[LinePanel, ...]:
    lines = [grid.line(f"ε={e:g}", noise, Loss("biv", epsilon=e)) for e in epsilons]
    return (LinePanel("", (*lines, grid.line("L2", noise, L2))),)


def _epsilon_faces(grid: Grid) -> Artefact:
    panels = _epsilons(grid, gamma(1.0), EPSILONS)
    return Artefact("fig06", "epsilonUTKF", "ε under Gamma α=1", panels)


def _epsilon_bike(grid: Grid) -> Artefact:
    panels = _epsilons(grid, gamma(1.0), EPSILONS)
    return Artefact("fig07", "epsilonBike", "ε under Gamma α=1", panels)


def _epsilon_binary(grid: Grid) -> Artefact:
    panels = _epsilons(grid, Noise("binary", 0.5), (*EPSILONS, *LARGE_EPSILONS))
    return Artefact(
        "fig08",
        "epsilonBinary",
        "ε under binary noise, half the labels almost clean (p=0.5)",
        panels,
    )


def _both(grid: Grid, noise: Noise, title: str) -> LinePanel:
    return LinePanel(title, (grid.line("L2", noise, L2), grid.line("BIV", noise, BIV), grid.truth))


def _gamma_high(grid: Grid) -> Artefact:
    panels = tuple(_both(grid, gamma(alpha), f"α={alpha:g}") for alpha in (1.0, 2.0, 5.0, 10.0))
    return Artefact("fig09", "GammaHigh", "BIV's advantage fades as α grows beyond 1", panels)


def _uniform(grid: Grid) -> Artefact:
    spreads = {"V=0": 0.0, "V=V_max/2": 0.5, "V=V_max": 1.0}
    panels = tuple(_both(grid, Noise("uniform", v), title) for title, v in spreads.items())
    return Artefact("fig10", "Uniform_both", "uniform noise of growing spread", panels, terms=V_MAX)


def _uniform_cutoffs(grid: Grid) -> Artefact:
    def panel(title: str, spread: float) -> LinePanel:
        noise = Noise("uniform", spread)
        lines = [grid.line("L2", noise, L2), grid.line("BIV", noise, BIV)]
        lines += _cutoffs(grid, noise, (0.5, 1.0, 1.5))
        return LinePanel(title, tuple(lines))

    panels = (panel("V=V_max", 1.0), panel("V=V_max/2", 0.5))
    shows = "cutoffs under uniform noise"
    return Artefact("fig11", "UniformBikeCutoff", shows, panels, terms=V_MAX)


def _low_alpha_bike(grid: Grid) -> Artefact:
    panels = _low_alphas(grid, {"L2": L2, "BIV": BIV})
    return Artefact("fig12", "GammaBikeLowAlpha", "BIV, L2 and cutoffs for α ≤ 1", panels)


def _low_alpha_faces(grid: Grid) -> Artefact:
    panels = _low_alphas(grid, {"L2": L2, "BIV": BIV})
    return Artefact("fig13", "GammaUTKFLowAlpha", "BIV, L2 and cutoffs for α ≤ 1", panels)


def _batch_size(grid: Grid) -> Artefact:
    noise = gamma(1.0)
    panels = tuple(
        LinePanel(label, tuple(grid.batches(f"batch {n}", noise, loss, n) for n in BATCH_SIZES))
        for label, loss in (("BIV", BIV), ("L2", L2))
    )
    return Artefact("fig14", "batchSize", "batches of 16 to 256 rows, Gamma α=1", panels)


def _variance_noise(grid: Grid) -> Artefact:
    def disturbed(d_v: float, *, squared: bool = False) -> Noise:
        return replace(gamma(1.0), disturbance=d_v, squared_reading=squared)

    lines = [grid.line(f"D_v={d:g}", disturbed(d), BIV) for d in (0.0, 0.5, 1.0, 2.0)]
    lines.append(grid.line("D_v=2, other reading", disturbed(2.0, squared=True), BIV))
    lines.append(grid.line("L2", gamma(1.0), L2))
    shows = "variances that are themselves misjudged, Gamma α=1"
    terms = (
        "σ² is told with an error of standard deviation √D_v·σ²/3 (other reading: D_v·σ²/3); "
        "labels keep the true one."
    )
    return Artefact("fig15", "VarNoise", shows, (LinePanel("", tuple(lines)),), terms=terms)


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
