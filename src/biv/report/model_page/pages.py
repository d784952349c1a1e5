"""The two pages, put together from their sections."""

from __future__ import annotations

from biv.report import conclusions
from biv.report.model_page import (
    comparison,
    error_bars,
    header,
    learning,
    outliers,
    predictions,
    provenance,
    residuals,
)
from biv.report.page import Page, footer_text
from biv.report.parts import quoted
from biv.workflows import ModelFolder
from biv.workflows.comparison_record import ComparisonRecord
from biv.workflows.evidence import TableEvidence


def build_model_page(folder: ModelFolder, place: str) -> Page:
    """Return the page about a model, its table, and the comparison made for it, if any.

    Args:
        folder: Model folder.
        place: Path of the folder, as a shell takes it.

    Raises:
        ValueError: The folder was written without what a report needs.
    """
    evidence, about = folder.evidence, folder.about
    if evidence is None:
        raise ValueError(f"{place} has no evidence.json: it is of an older biv. Train it again")
    first, *more = conclusions.of_training(about.result, evidence, folder.comparison)
    count = len(folder.schema.columns)
    return Page(
        f"Error bars of {quoted(evidence.target)}"
        if evidence.bars
        else f"A model of {quoted(evidence.target)}",
        f"{evidence.rows:,} labels in {header.files_in_words(about.files)}; "
        f"{count:,} column{'' if count == 1 else 's'} to learn from.",
        first,
        [
            *error_bars.sections(evidence),
            *comparison.sections(evidence, folder.comparison, comparison.command_for(folder)),
            learning.section(about.result, noisy=evidence.bars is not None),
            predictions.section(evidence),
            *residuals.sections(evidence),
            outliers.section(evidence),
            provenance.model_section(folder, place),
        ],
        parts=[header.model_figures(evidence, about.result)],
        footer=footer_text(),
        more_conclusions=more,
    )


def build_comparison_page(
    evidence: TableEvidence, compared: ComparisonRecord, command: str
) -> Page:
    """Return the page about methods compared on a table, before any model of it is kept.

    Args:
        evidence: Of the table and of BIV's predictions.
        compared: Result of the comparison.
        command: Command that made it.
    """
    first, *more = conclusions.of_comparison(compared)
    return Page(
        f"Are the error bars of {quoted(evidence.target)} worth it?",
        f"{evidence.rows:,} labels; {compared.rows:,} of them compared in {compared.folds} folds.",
        first,
        [
            *error_bars.sections(evidence),
            *comparison.sections(evidence, compared, ""),
            predictions.section(evidence),
            *residuals.sections(evidence),
            outliers.section(evidence),
            provenance.comparison_section(compared, command),
        ],
        parts=[header.label_figures(evidence)],
        footer=footer_text(),
        more_conclusions=more,
    )
