"""Train a model on a table in memory and write it to a folder, or resume an interrupted run."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from biv._utils.atomic_files import remove
from biv._utils.typed_json import to_json
from biv._utils.warnings import warn
from biv.estimator.findings import ErrorBarWarning
from biv.estimator.regressor import BIVRegressor
from biv.tables import LabelledTable
from biv.tables.part import require_pandas
from biv.workflows.checks import naming_cells, require_learnable
from biv.workflows.comparison_record import ComparisonRecord
from biv.workflows.evidence import TableEvidence
from biv.workflows.model_folder import ModelFolder
from biv.workflows.training_folder import UNFINISHED, locked_folder, prepare_folder
from biv.workflows.training_record import FitRecord, TrainingRecord, peak_memory


def train_folder(
    folder: str | Path,
    table: LabelledTable,
    settings: Mapping[str, Any],
    *,
    force: bool = False,
    comparison: ComparisonRecord | None = None,
    command: str | None = None,
) -> ModelFolder:
    """Fit a model and write it to a folder, or resume the same run if it was interrupted.

    Until the training is finished, the folder holds a file ``unfinished-….pt``; a previous model
    stays until then.

    Parameters
    ----------
    folder : str or Path
        Folder of the model; created if it does not exist.
    table : LabelledTable
        Table to train on.
    settings : mapping of str to object
        Parameters of :class:`BIVRegressor`.
    force : bool, default=False
        Whether to replace a finished model, or an unfinished run with other rows or settings.
    comparison : ComparisonRecord or None, default=None
        Comparison of methods, kept beside the model for its report.
    command : str or None, default=None
        Command that trains the model, kept for its report.

    Returns
    -------
    ModelFolder
        The trained model with its evidence.

    Raises
    ------
    ValueError
        If the folder holds a model, an unfinished run with other rows or settings, or other
        files; or if no model can be trained on the table.
    InUseError
        If another process trains into the folder.
    WriteError
        If the model cannot be written; the previous content of the folder is unchanged.
    """
    require_learnable(table, unknown=settings.get("unknown_variance", "raise"))
    folder = Path(folder)
    checkpoint = folder / UNFINISHED.format(_digest(table, settings))
    with locked_folder(folder):
        prepare_folder(folder, checkpoint, force=force)
        start = time.perf_counter()
        model = _fit(folder, checkpoint, table, settings)
        result = FitRecord.of(model, table.y, table.variance, table.weight)
        evidence = TableEvidence.from_model(model, table, seed=settings.get("random_state") or 0)
        about = TrainingRecord(
            command=command,
            files={str(path): count for path, count in table.files.items()},
            rows=len(table),
            rows_without_label=table.unlabelled,
            settings=to_json({k: v for k, v in settings.items() if k != "verbose"}),
            result=replace(result, finding=evidence.finding),
            seconds=time.perf_counter() - start,
            peak_memory_bytes=peak_memory(),
        )
        finished = ModelFolder(model, table.schema, table.target, about, evidence, comparison)
        finished.write(folder)
        return finished


def _fit(
    folder: Path, checkpoint: Path, table: LabelledTable, settings: Mapping[str, Any]
) -> BIVRegressor:
    resumes = checkpoint.is_file()
    if resumes:
        warn(f"resuming the training in {folder}")
    kept = tuple(table.features.columns)  # reading the table has left out the others
    model = BIVRegressor(**settings, keep=kept, checkpoint=checkpoint)
    try:
        with warnings.catch_warnings(), naming_cells(table, np.arange(len(table))):
            warnings.simplefilter("ignore", ErrorBarWarning)  # the evidence has the finding
            model.fit(table.features, table.y, y_var=table.variance, sample_weight=table.weight)
    except ValueError:  # these rows or settings are invalid: there is nothing to resume from
        if not resumes:
            remove(checkpoint)
        raise
    return model


def _digest(table: LabelledTable, settings: Mapping[str, Any]) -> str:
    """Return a digest of everything that decides the result of training."""
    deciding = {k: v for k, v in settings.items() if k not in ("n_jobs", "verbose")}
    digest = hashlib.sha256(json.dumps(to_json(deciding), sort_keys=True).encode())
    digest.update(json.dumps([table.schema.to_json(), list(table.features.columns)]).encode())
    hashed = require_pandas().util.hash_pandas_object(table.features, index=False)
    columns = (hashed.to_numpy(), table.y, table.variance, table.weight)
    for column in columns:
        digest.update(b"none" if column is None else np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()[:12]
