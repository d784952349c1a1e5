"""Lines, panels and artefacts: the grids of runs that the paper shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from biv.paper.presets import FACES, ROWS, Preset
from biv.paper.spec import Loss, Noise, Run

EPSILON = 0.05  # NOTE[DIFF] 15: the paper's, as the learning rate of a Run is
CLEAN = Noise()
L2, IV, BIV = Loss("l2"), Loss("iv"), Loss("biv", epsilon=EPSILON)


def gamma(alpha: float) -> Noise:
    """σ² ~ Gamma(α), mean μ_P."""
    return Noise("gamma", alpha)


def cutoff(multiple: float) -> Loss:
    """C = `multiple` × μ_P."""
    return Loss("cutoff", threshold=multiple)


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
            raise ValueError(f"a {what} must be one of {', '.join(known)}; got {name!r}")
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
        if preset.only_faces:
            raise ValueError(f"the {preset.name} preset is for utkface; got {dataset}")
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


def cutoff_label(multiple: float) -> str:
    """As it is drawn."""
    return {1 / 20: "C=μ/20", 1 / 4: "C=μ/4", 1 / 2: "C=μ/2", 1.0: "C=μ", 1.5: "C=1.5μ"}.get(
        multiple, f"C={multiple:g}μ"
    )
