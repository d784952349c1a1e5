"""Lines, panels and artefacts: the grids of runs behind the paper's table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from biv.paper.presets import FACES, ROWS, Preset
from biv.paper.spec import Loss, Noise, Run

EPSILON = 0.05  # NOTE[DIFF] 15: the paper's value; so is the default learning rate of a Run
CLEAN = Noise()
L2, IV, BIV = Loss("l2"), Loss("iv"), Loss("biv", epsilon=EPSILON)


def gamma(alpha: float) -> Noise:
    """Return Gamma noise: σ² has shape α and mean μ_P."""
    return Noise("gamma", alpha)


def cutoff(multiple: float) -> Loss:
    """Return a cutoff loss with threshold C = `multiple` × μ_P."""
    return Loss("cutoff", threshold=multiple)


@dataclass(frozen=True)
class Line:
    """One curve of a figure: one run per seed.

    Attributes
    ----------
    label : str
        Label of the curve.
    run : Run
        The run of seed 0.
    """

    label: str
    run: Run

    def runs(self, seeds: int) -> list[Run]:
        """Return one run per seed."""
        return [replace(self.run, seed=seed) for seed in range(seeds)]


@dataclass(frozen=True)
class LinePanel:
    """Curves that share one pair of axes."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Artefact:
    """The paper's table or one of its figures.

    Attributes
    ----------
    name : str
        "table1" or "fig01" to "fig15".
    label : str
        Name of the artefact in the paper.
    title : str
        Content of the artefact in one line.
    panels : tuple of LinePanel
        The grid of runs.
    kind : str, default="figure"
        "table" or "figure"; `report.files` writes each kind.
    quantity : str, default="test_loss"
        "test_loss" or "train_loss".
    terms : str, default=""
        Sentences of the caption that define the terms used.
    """

    name: str
    label: str
    title: str
    panels: tuple[LinePanel, ...]
    kind: str = "figure"
    quantity: str = "test_loss"
    terms: str = ""

    def runs(self, seeds: int) -> list[Run]:
        """Return all runs of the artefact, without duplicates."""
        lines = (line for panel in self.panels for line in panel.lines)
        return list(dict.fromkeys(run for line in lines for run in line.runs(seeds)))

    def only(self, panels: Sequence[str], lines: Sequence[str]) -> Artefact:
        """Return the artefact with only these panels and lines; an empty list selects all.

        Raises
        ------
        ValueError
            A title or label is unknown, or the selected panels have none of the selected lines.
        """
        titles = [panel.title for panel in self.panels]
        labels = dict.fromkeys(line.label for panel in self.panels for line in panel.lines)
        kept_titles = _matching("panel", panels, titles) or titles
        kept_labels = _matching("line", lines, list(labels)) or list(labels)
        parts = (
            LinePanel(panel.title, tuple(line for line in panel.lines if line.label in kept_labels))
            for panel in self.panels
            if panel.title in kept_titles
        )
        remaining = tuple(part for part in parts if part.lines)
        if not remaining:
            raise ValueError(f"the selected panels of {self.name} have none of the selected lines")
        return replace(self, panels=remaining)


def _matching(kind: str, requested: Sequence[str], available: Sequence[str]) -> list[str]:
    """Return the available names that were requested, with Greek letters spelled out or not."""
    by_plain_name = {_plain(name): name for name in available}
    for name in requested:
        if _plain(name) not in by_plain_name:
            raise ValueError(f"a {kind} must be one of {', '.join(available)}; got {name!r}")
    return [by_plain_name[_plain(name)] for name in requested]


def _plain(name: str) -> str:
    plain = name.lower()
    for letter, word in (("α", "alpha"), ("ε", "epsilon"), ("μ", "mu"), ("=0.", "=.")):
        plain = plain.replace(letter, word)
    return plain


class Grid:
    """Factory of lines for one data set and one preset."""

    def __init__(self, dataset: str, preset: Preset) -> None:
        if dataset == "utkface":
            self.template_run = Run(dataset, CLEAN, L2, seed=0, **FACES[preset.name]._asdict())
            return
        if preset.only_faces:
            raise ValueError(
                f"the {preset.name} preset requires the data set utkface; got {dataset}"
            )
        rows = ROWS[dataset]
        self.template_run = Run(
            dataset,
            CLEAN,
            L2,
            seed=0,
            train_rows=round(rows.train * preset.fraction),
            test_rows=round(rows.test * preset.fraction),
            epochs=preset.epochs,
            test_every=preset.test_every,
        )

    def line(self, label: str, noise: Noise, loss: Loss) -> Line:
        """Return the line of a noise and a loss."""
        return Line(label, replace(self.template_run, noise=noise, loss=loss))

    def batches(self, label: str, noise: Noise, loss: Loss, size: int) -> Line:
        """Return a line with another batch size, evaluated after the same number of samples."""
        run = self.line(label, noise, loss).run
        every = max(1, run.test_every * self.template_run.batch_size // size)
        return Line(label, replace(run, batch_size=size, test_every=every))

    @property
    def truth(self) -> Line:
        """L2 trained on clean labels, a lower bound for methods that train on noisy ones."""
        return self.line("GT", CLEAN, L2)


def cutoff_label(multiple: float) -> str:
    """Return the label of a cutoff whose threshold is a multiple of μ_P."""
    return {1 / 20: "C=μ/20", 1 / 4: "C=μ/4", 1 / 2: "C=μ/2", 1.0: "C=μ", 1.5: "C=1.5μ"}.get(
        multiple, f"C={multiple:g}μ"
    )
