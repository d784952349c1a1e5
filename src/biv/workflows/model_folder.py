"""A folder with a trained model and the evidence for its report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv._utils import typed_json
from biv._utils.atomic_files import remove, write_atomically
from biv._utils.messages import shortened, wrong_path
from biv.estimator.regressor import BIVRegressor
from biv.preprocessing.encoder import Categorical, Ignored
from biv.tables import Target
from biv.tables.part import Part
from biv.tables.schema import Schema
from biv.workflows.checksums import sha256, verify
from biv.workflows.comparison_record import ComparisonRecord
from biv.workflows.evidence import TableEvidence
from biv.workflows.staging import Staging
from biv.workflows.training_folder import ABOUT, COMPARISON, EVIDENCE, FILES, MODEL, UNFINISHED
from biv.workflows.training_record import FolderManifest, TrainingRecord

VERIFIED = (MODEL, EVIDENCE, COMPARISON)  # about.json has a checksum of each that exists


class Predicted(NamedTuple):
    """Predictions for some rows of a file.

    Attributes
    ----------
    mean : (n,) array
        Predicted true labels.
    std : (n,) array
        Standard deviations of the true labels about them.
    unseen : dict of str to int
        Number of cells per column that hold a category not seen in training.
    """

    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]
    unseen: dict[str, int]


@dataclass(frozen=True, eq=False)
class ModelFolder:
    """A fitted model, and how to read the tables that it predicts.

    Attributes
    ----------
    model : BIVRegressor
        Fitted model.
    schema : Schema
        Meaning of the columns of its table.
    target : Target
        Columns of the labels.
    about : TrainingRecord
        How the model was trained, and the results of the fit.
    evidence : TableEvidence or None
        Data that a report shows about the table; None if the folder was written without it.
    comparison : ComparisonRecord or None
        Comparison with other methods; None if there was none.
    """

    model: BIVRegressor
    schema: Schema
    target: Target
    about: TrainingRecord
    evidence: TableEvidence | None = None
    comparison: ComparisonRecord | None = None

    def write(self, folder: Path) -> None:
        """Write the model to a folder that the caller has locked, and remove checkpoints there.

        A previous model of the folder stays until the new one is complete.
        """
        with Staging(folder, FILES).replacing() as new:
            self.model.save(new / MODEL)
            if self.evidence is not None:
                _write_json(new / EVIDENCE, self.evidence.to_json(), indent=None)
            if self.comparison is not None:
                _write_json(new / COMPARISON, self.comparison.to_json())
            content = FolderManifest(
                biv=metadata.version("biv"),
                schema=self.schema,
                target=self.target,
                about=self.about,
                files={name: sha256(new / name) for name in VERIFIED if (new / name).is_file()},
            )
            _write_json(new / ABOUT, content.to_json())
        for checkpoint in folder.glob(UNFINISHED.format("*")):
            remove(checkpoint)

    @classmethod
    def read(cls, folder: str | Path, *, for_report: bool = True) -> ModelFolder:
        """Read a model folder.

        Parameters
        ----------
        folder : str or Path
            Folder of the model.
        for_report : bool, default=True
            Whether to read the files that only a report needs.

        Raises
        ------
        ValueError
            If it is not a model folder, or is unfinished, damaged or of another version.
        FileNotFoundError
            If the folder does not exist.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(wrong_path(folder, "a folder"))
        files = Staging(folder, FILES)
        return files.read(lambda: cls._read(files, for_report=for_report))

    @classmethod
    def _read(cls, files: Staging, *, for_report: bool) -> ModelFolder:
        folder, path = files.folder, files.current(ABOUT)
        if not path.is_file():
            unfinished = any(folder.glob(UNFINISHED.format("*")))
            present = (
                "an unfinished training run (train again to resume it)" if unfinished else "none"
            )
            raise ValueError(f"{folder} must be a model folder, with an {ABOUT}; got {present}")
        content = FolderManifest.read(path)
        model_file, evidence_file, comparison_file = map(files.current, VERIFIED)
        verify(model_file, content.files)
        model = BIVRegressor.load(model_file)
        with typed_json.errors_name_file(path):
            _require_together(content.schema, model)
        evidence = comparison = None
        if for_report and verify(evidence_file, content.files):
            evidence = TableEvidence.read(evidence_file)
        if for_report and verify(comparison_file, content.files):
            comparison = ComparisonRecord.read(comparison_file, content.target.name, "is damaged")
        return cls(model, content.schema, content.target, content.about, evidence, comparison)

    def predict(self, part: Part) -> Predicted:
        """Predict the true labels of some rows of a file."""
        frame = self.schema.frame(part)
        mean, std = self.model.predict(frame, return_std=True)
        return Predicted(mean, std, self.model._fitted.encoder.unseen(frame))


def _write_json(path: Path, content: Mapping[str, Any], *, indent: int | None = 1) -> None:
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    write_atomically(path, f"{text}\n".encode())


def _require_together(schema: Schema, model: BIVRegressor) -> None:
    """Check that the schema yields the features that the model was trained on.

    Raises
    ------
    ValueError
        If it yields others.
    """
    given = [(name, column.holds_text) for column in schema.columns for name in column.features]
    rules = model._fitted.encoder.columns
    names = list(getattr(model, "feature_names_in_", []))
    if names != [name for name, _ in given] or len(names) != len(rules):
        raise ValueError("schema.columns must give the features that the model was trained on")
    for (name, text), rule in zip(given, rules, strict=True):
        if not isinstance(rule, Ignored) and isinstance(rule, Categorical) != text:
            kind = "categories" if isinstance(rule, Categorical) else "numbers"
            raise ValueError(
                f"schema.columns must give {kind} for {shortened(name)}, as in training"
            )
