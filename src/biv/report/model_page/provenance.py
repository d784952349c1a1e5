"""How a result was obtained, and the commands that reproduce it."""

from __future__ import annotations

from importlib import metadata

from biv.report.conclusions import r2_in_words
from biv.report.parts import Cell, Commands, Section, Table, Text
from biv.workflows import ModelFolder
from biv.workflows.comparison_record import ComparisonRecord


def comparison_section(compared: ComparisonRecord, command: str) -> Section:
    """Return the section about the command that ran a comparison."""
    text = (
        f"The command used {compared.rows:,} of {compared.rows_in_all:,} rows and {compared.folds} "
        "folds. "
        "The predictions on this page are those of BIV for held-out rows."
    )
    return Section("repeat", "How to repeat the comparison", [Commands([command]), Text(text)])


def model_section(folder: ModelFolder, shell_path: str) -> Section:
    """Return the section about the model in the folder at `shell_path`."""
    about = folder.about
    columns = Table(
        "columns",
        "Feature columns",
        ["column", "kind"],
        [[column.name, column.kind] for column in folder.schema.columns],
        folded=True,
    )
    files = Table(
        "files",
        "Training files",
        ["file", "rows"],
        [[path, Cell(f"{rows:,}", float(rows))] for path, rows in about.files.items()],
        folded=len(about.files) > 3,
        numbers=(1,),
    )
    commands = [
        *([about.command] if about.command else []),
        f"biv predict {shell_path} NEW.csv",
        f"biv report {shell_path} -o report.html --force",
    ]
    train = "train the model, " if about.command else ""
    return Section(
        "model",
        "The model and its provenance",
        [
            Text(f"Commands to {train}predict with the model, and create this page again:"),
            Commands(commands),
            Table("facts", "Facts about the training", ["quantity", "value"], _facts(folder)),
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
        "rows without a label, ignored": f"{about.rows_without_label:,}",
        "mean squared error to the true labels": f"{result.mse:.5g} ± {result.mse_stderr:.2g}",
        "R²": r2_in_words(result.r2, result.r2_stderr),
        "label variance": f"{result.label_variance:.5g}",
        "τ²": f"{result.tau2:.5g}",
        "training time": f"{about.seconds:.0f} s",
        "version of biv": metadata.version("biv"),
    } | {f"setting {name}": str(value) for name, value in about.settings.items()}
    return [[name, value] for name, value in facts.items()]
