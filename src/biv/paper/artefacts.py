"""The paper's table and fifteen figures, each a grid of runs.

NOTE[DIFF] 17: the text of the paper has no images; where it leaves a grid open, the one here is
ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from biv.paper.spec import Loss, Noise, Run

EPSILON = 0.05  # NOTE[DIFF] 15: the paper's, as the learning rate of a Run is
EPSILONS = (0.0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
LARGE_EPSILONS = (10.0, 100.0)
LOW_ALPHAS = (1.0, 0.5, 0.25)
TABLE_CUTOFFS = (1 / 20, 1 / 4, 1.0, 5.0)
FIGURE_CUTOFFS = (1 / 4, 1 / 2, 1.0, 2.0, 5.0)
BATCH_SIZES = (16, 32, 64, 128, 256)
V_MAX = "V is the variance of P(σ²), V_max = μ²/3 the largest of a uniform one."

CLEAN = Noise()
L2, IV, BIV = Loss("l2"), Loss("iv"), Loss("biv", epsilon=EPSILON)


class RowCounts(NamedTuple):
    """How many rows of a data set are trained on and tested on, and how many there are."""

    train: int
    test: int
    all: int


ROWS = {
    "bike": RowCounts(7_000, 3_379, 17_379),
    "bike2011": RowCounts(5_500, 2_200, 8_645),
    "utkface": RowCounts(16_000, 4_000, 23_318),  # NOTE[DIFF] 18: distinct files of 23,708
}


def gamma(alpha: float) -> Noise:
    """σ² ~ Gamma(α), mean μ_P."""
    return Noise("gamma", alpha)


def cutoff(multiple: float) -> Loss:
    """C = `multiple` × μ_P."""
    return Loss("cutoff", threshold=multiple)


@dataclass(frozen=True)
class Preset:
    """How much of the paper's protocol is run.

    Attributes:
        name: "paper", "laptop" or "smoke".
        epochs: Passes over the data.
        share: Of the rows of the data set that are used.
        test_every: Steps of a batch of 256 between two tests.
    """

    name: str
    epochs: int
    share: float
    test_every: int


PRESETS = {
    "paper": Preset("paper", epochs=100, share=1.0, test_every=1),  # NOTE[DIFF] 10
    "laptop": Preset("laptop", epochs=60, share=1.0, test_every=7),
    "smoke": Preset("smoke", epochs=20, share=0.12, test_every=1),
}


class FaceScale(NamedTuple):
    """A preset on UTKFace, by the names of a :class:`Run`.

    A network for images takes thousands of times as long as one for a table.
    """

    train_rows: int
    test_rows: int
    pixels: int
    epochs: int
    batch_size: int = 256
    test_every: int = 1


FACES = {
    "paper": FaceScale(16_000, 4_000, pixels=200, epochs=20),
    "laptop": FaceScale(4_000, 1_000, pixels=64, epochs=12, batch_size=128, test_every=15),
    "smoke": FaceScale(256, 64, pixels=32, epochs=3, batch_size=32),
}


@dataclass(frozen=True)
class Line:
    """One curve of a figure: a run for every seed.

    Attributes:
        label: As it is drawn.
        run: The run of seed 0.
    """

    label: str
    run: Run

    def runs(self, seeds: int) -> list[Run]:
        """The run of every seed."""
        return [replace(self.run, seed=seed) for seed in range(seeds)]


@dataclass(frozen=True)
class LinePanel:
    """Curves that share their axes."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Artefact:
    """The table or one of the figures.

    Attributes:
        name: "table1" or "fig01" to "fig15".
        label: What the paper calls it.
        shows: What is to be seen, in a line.
        panels: The grid.
        kind: "table" or "figure": `report.files` has how each is written.
        quantity: "test_loss" or "train_loss".
        terms: What the words on it mean, for a caption.
    """

    name: str
    label: str
    shows: str
    panels: tuple[LinePanel, ...]
    kind: str = "figure"
    quantity: str = "test_loss"
    terms: str = ""

    def runs(self, seeds: int) -> list[Run]:
        """Every run of it, each once."""
        lines = (line for panel in self.panels for line in panel.lines)
        return list(dict.fromkeys(run for line in lines for run in line.runs(seeds)))

    def only(self, panels: Sequence[str], lines: Sequence[str]) -> Artefact:
        """The part of it with these titles and labels; where none are given, with all.

        Raises:
            ValueError: There is no such title or label.
        """
        titles = [panel.title for panel in self.panels]
        labels = dict.fromkeys(line.label for panel in self.panels for line in panel.lines)
        wanted = _among("panel", panels, titles) or titles
        kept = _among("line", lines, list(labels)) or list(labels)
        parts = (
            LinePanel(panel.title, tuple(line for line in panel.lines if line.label in kept))
            for panel in self.panels
            if panel.title in wanted
        )
        left = tuple(part for part in parts if part.lines)
        if not left:
            raise ValueError(f"{self.name} has none of these lines in these panels")
        return replace(self, panels=left)


def _among(what: str, asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """These names, Greek letters spelled out or not."""
    plain = {_spelled(name): name for name in known}
    for name in asked:
        if _spelled(name) not in plain:
            raise ValueError(f"a {what} must be one of {', '.join(known)}; found {name!r}")
    return [plain[_spelled(name)] for name in asked]


def _spelled(name: str) -> str:
    spelled = name.lower()
    for letter, word in (("α", "alpha"), ("ε", "epsilon"), ("μ", "mu"), ("=0.", "=.")):
        spelled = spelled.replace(letter, word)
    return spelled


class Grid:
    """Lines on one data set at one preset."""

    def __init__(self, dataset: str, preset: Preset) -> None:
        if dataset == "utkface":
            self.blank = Run(dataset, CLEAN, L2, seed=0, **FACES[preset.name]._asdict())
            return
        rows = ROWS[dataset]
        self.blank = Run(
            dataset,
            CLEAN,
            L2,
            seed=0,
            train_rows=round(rows.train * preset.share),
            test_rows=round(rows.test * preset.share),
            epochs=preset.epochs,
            test_every=preset.test_every,
        )

    def line(self, label: str, noise: Noise, loss: Loss) -> Line:
        """A noise and a loss."""
        return Line(label, replace(self.blank, noise=noise, loss=loss))

    def batches(self, label: str, noise: Noise, loss: Loss, size: int) -> Line:
        """The same with another batch size, tested after as many samples."""
        run = self.line(label, noise, loss).run
        every = max(1, run.test_every * self.blank.batch_size // size)
        return Line(label, replace(run, batch_size=size, test_every=every))

    @property
    def truth(self) -> Line:
        """L2 on clean labels, the floor."""
        return self.line("GT", CLEAN, L2)


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
    raise ValueError(f"an artefact must be one of {names}; found {name!r}")


def cutoff_label(multiple: float) -> str:
    """As it is drawn."""
    return {1 / 20: "C=μ/20", 1 / 4: "C=μ/4", 1 / 2: "C=μ/2", 1.0: "C=μ", 1.5: "C=1.5μ"}.get(
        multiple, f"C={multiple:g}μ"
    )


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
        "Gamma α=.25": gamma(0.25),
        "Gamma α=1": gamma(1.0),
        "uniform V=0": Noise("uniform", 0.0),
        "uniform V=V_max": Noise("uniform", 1.0),
        "binary p=.5": Noise("binary", 0.5),
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
        "ε=.05, normalised (BIV)": BIV,
        "ε=.05, not normalised": Loss("iv", epsilon=EPSILON),
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
        "ε under binary noise, half the labels almost clean (p=.5)",
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
