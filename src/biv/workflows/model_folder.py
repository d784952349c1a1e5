"""A trained model in a folder, with what its table looked like."""

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
from biv._utils.messages import shortened
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

VERIFIED = (MODEL, EVIDENCE, COMPARISON)  # about.json has the checksum of each that there is


class Predicted(NamedTuple):
    """Some rows of a file.

    Attributes:
        mean: Their true labels, as predicted.
        std: The standard deviations of these.
        unseen: How many cells hold a category that was not seen in training, by column.
    """

    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]
    unseen: dict[str, int]


@dataclass(frozen=True, eq=False)
class ModelFolder:
    """A fitted model, and how to read the tables that it predicts.

    Attributes:
        model: Fitted.
        schema: What the columns of its table meant.
        target: Where the labels were.
        about: How it was trained, and what the fit found.
        evidence: What a report shows of its table; None of a folder that was written without.
        comparison: Comparison with other methods; None if there was none.
    """

    model: BIVRegressor
    schema: Schema
    target: Target
    about: TrainingRecord
    evidence: TableEvidence | None = None
    comparison: ComparisonRecord | None = None

    def write(self, folder: Path) -> None:
        """To a folder that the caller holds, in which nothing is unfinished then.

        The model that it held before is there until the new one is complete.
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
        for left in folder.glob(UNFINISHED.format("*")):
            remove(left)

    @classmethod
    def read(cls, folder: str | Path, *, for_report: bool = True) -> ModelFolder:
        """Return the model that a folder holds.

        Args:
            folder: Of the model.
            for_report: Whether to read what a report needs, which predictions do not.

        Raises:
            ValueError: It is not a model folder, is unfinished, damaged or of another version.
            FileNotFoundError: It is not there.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder")
        files = Staging(folder, FILES)
        return files.read(lambda: cls._read(files, for_report=for_report))

    @classmethod
    def _read(cls, files: Staging, *, for_report: bool) -> ModelFolder:
        folder, path = files.folder, files.current(ABOUT)
        if not path.is_file():
            unfinished = any(folder.glob(UNFINISHED.format("*")))
            found = "an unfinished training: train again to go on" if unfinished else "none"
            raise ValueError(f"{folder} must be a model folder, with an {ABOUT}; got {found}")
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
        """The true labels of some rows of a file, and what is to be known about them."""
        frame = self.schema.frame(part)
        mean, std = self.model.predict(frame, return_std=True)
        return Predicted(mean, std, self.model._fitted.encoder.unseen(frame))


def _write_json(path: Path, content: Mapping[str, Any], *, indent: int | None = 1) -> None:
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    write_atomically(path, f"{text}\n".encode())


def _require_together(schema: Schema, model: BIVRegressor) -> None:
    """Check that the model wants the features that the schema gives.

    Raises:
        ValueError: It wants others.
    """
    given = [(name, own.holds_text) for own in schema.columns for name in own.features]
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
