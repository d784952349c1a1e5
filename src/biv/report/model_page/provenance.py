"""How the result was obtained, and how to repeat it."""

from __future__ import annotations

from importlib import metadata

from biv.report.conclusions import r2_in_words
from biv.report.parts import Cell, Commands, Section, Table, Text
from biv.workflows import ModelFolder
from biv.workflows.comparison_record import ComparisonRecord


def comparison_section(compared: ComparisonRecord, command: str) -> Section:
    """Return the section about a comparison that was made by a command."""
    text = (
        f"Folds: {compared.folds}; rows compared: {compared.rows:,} of {compared.rows_in_all:,}. "
        "Predictions on this page are BIV's, of rows that were left out."
    )
    return Section("repeat", "How to repeat it", [Commands([command]), Text(text)])


def model_section(folder: ModelFolder, place: str) -> Section:
    """Return the section about a model, whose folder is at a place."""
    about = folder.about
    columns = Table(
        "columns",
        "The columns that it learns from",
        ["column", "kind"],
        [[column.name, column.kind] for column in folder.schema.columns],
        folded=True,
    )
    files = Table(
        "files",
        "The files",
        ["file", "rows"],
        [[path, Cell(f"{rows:,}", float(rows))] for path, rows in about.files.items()],
        folded=len(about.files) > 3,
        numbers=(1,),
    )
    commands = [
        *([about.command] if about.command else []),
        f"biv predict {place} NEW.csv",
        f"biv report {place} -o report.html --force",
    ]
    return Section(
        "model",
        "The model, and how to repeat it",
        [
            Text("What trained it; to predict with it; to make this page again:"),
            Commands(commands),
            Table("facts", "How it came about", ["what", "found"], _facts(folder)),
            files,
            columns,
        ],
    )


def _facts(folder: ModelFolder) -> list[list[str]]:
    about, result = folder.about, folder.about.result
    facts = {
        "label": folder.target.name,
        "error bars": ", ".join(folder.target.error_bars) or "none",
        "rows with a label": f"{about.rows:,}",
        "rows without one, left out": f"{about.rows_without_label:,}",
        "mean squared error to the true labels": f"{result.mse:.5g} ± {result.mse_stderr:.2g}",
        "R²": r2_in_words(result.r2, result.r2_stderr),
        "label variance": f"{result.label_variance:.5g}",
        "τ²": f"{result.tau2:.5g}",
        "time": f"{about.seconds:.0f} s",
        "biv": metadata.version("biv"),
    } | {f"setting {name}": str(value) for name, value in about.settings.items()}
    return [[what, found] for what, found in facts.items()]
