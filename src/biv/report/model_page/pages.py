"""The two pages, assembled from their sections."""

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


def build_model_page(folder: ModelFolder, shell_path: str) -> Page:
    """Return the page about a model, its table and its comparison of methods, if there is one.

    Parameters
    ----------
    folder : ModelFolder
        Contents of the model folder.
    shell_path : str
        Path of the folder, quoted for a shell.

    Raises
    ------
    ValueError
        If the folder has no evidence.json, which a report needs.
    """
    evidence, about = folder.evidence, folder.about
    if evidence is None:
        raise ValueError(
            f"{shell_path} has no evidence.json, because an older version of biv wrote it; train "
            "the model again"
        )
    summary = conclusions.from_training(about.result, evidence, folder.comparison)
    count = len(folder.schema.columns)
    return Page(
        f"Error bars of {quoted(evidence.target)}"
        if evidence.bars
        else f"Model of {quoted(evidence.target)}",
        f"{evidence.rows:,} labels in {header.files_in_words(about.files)}, "
        f"{count:,} feature column{'' if count == 1 else 's'}.",
        summary.verdict,
        [
            *error_bars.sections(evidence),
            *comparison.sections(evidence, folder.comparison, comparison.command_for(folder)),
            learning.section(about.result, noisy=evidence.bars is not None),
            predictions.section(evidence),
            *residuals.sections(evidence),
            outliers.section(evidence),
            provenance.model_section(folder, shell_path),
        ],
        parts=[header.model_figures(evidence, about.result)],
        footer=footer_text(),
        more_conclusions=summary.details,
    )


def build_comparison_page(
    evidence: TableEvidence, compared: ComparisonRecord, command: str
) -> Page:
    """Return the page about a comparison of methods on a table, for which no model is saved.

    Parameters
    ----------
    evidence : TableEvidence
        Statistics of the table and of BIV's predictions.
    compared : ComparisonRecord
        Result of the comparison.
    command : str
        Command that ran the comparison.
    """
    summary = conclusions.from_comparison(compared)
    return Page(
        f"Are the error bars of {quoted(evidence.target)} worth using?",
        f"{evidence.rows:,} labels, {compared.rows:,} of them used to compare methods in "
        f"{compared.folds} folds.",
        summary.verdict,
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
        more_conclusions=summary.details,
    )
