"""A trained model in a folder, with what its table looked like; unfinished training goes on."""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv import _json, metrics
from biv._checks import shortened
from biv._files import remove, write_atomically
from biv._warnings import warn
from biv.datasets import LabelledTable, Target
from biv.datasets.columns import Schema
from biv.datasets.tablefiles import Part, require_pandas
from biv.estimator import BIVRegressor
from biv.features import Categorical, Ignored
from biv.findings import ErrorBarWarning
from biv.modelfile import plain
from biv.owndata.evidence import Evidence
from biv.owndata.learnable import naming_cells, require_learnable
from biv.owndata.relation import label_correlation
from biv.owndata.room import (
    ABOUT,
    COMPARISON,
    EVIDENCE,
    FILES,
    MODEL,
    UNFINISHED,
    held,
    require_room,
)
from biv.owndata.schemas import read_about, read_comparison, sha256, verify
from biv.owndata.scores import r2_scores
from biv.owndata.staging import Staging

Floats = npt.NDArray[np.float64]

FORMAT = "biv model folder 1"
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
        about: How it came about, in what JSON has.
        evidence: What a report shows of its table; None of a folder that was written without.
        comparison: With other methods, as `biv compare --json` told it; None if there was none.
    """

    model: BIVRegressor
    schema: Schema
    target: Target
    about: Mapping[str, Any]
    evidence: Evidence | None = None
    comparison: Mapping[str, Any] | None = None

    @classmethod
    def train(
        cls,
        folder: str | Path,
        table: LabelledTable,
        settings: Mapping[str, Any],
        *,
        force: bool = False,
        comparison: Mapping[str, Any] | None = None,
        command: str | None = None,
    ) -> ModelFolder:
        """Fit a model and write it to a folder, or go on where the same training was interrupted.

        Until it is finished the folder holds a file ``unfinished-….pt``; a model that was there
        before stays until then.

        Args:
            folder: Is made if it is not there.
            table: What to learn from.
            settings: Of :class:`BIVRegressor`.
            force: Whether to replace a finished model, or an unfinished training of other rows or
                settings.
            comparison: Is kept beside the model, for its report.
            command: That it was trained by, likewise.

        Raises:
            ValueError: The folder holds one of these, or other files; or the table has nothing to
                learn from.
            InUseError: Another process trains into the folder.
            WriteError: The model cannot be written; what the folder held before is still there.
        """
        require_learnable(table, unknown=settings.get("unknown_variance", "raise"))
        folder = Path(folder)
        checkpoint = folder / UNFINISHED.format(_digest(table, settings))
        with held(folder):
            require_room(folder, checkpoint, force=force)
            return cls._train(folder, checkpoint, table, settings, comparison, command)

    @classmethod
    def _train(
        cls,
        folder: Path,
        checkpoint: Path,
        table: LabelledTable,
        settings: Mapping[str, Any],
        comparison: Mapping[str, Any] | None,
        command: str | None,
    ) -> ModelFolder:
        start = time.perf_counter()
        resumes = checkpoint.is_file()
        if resumes:
            warn(f"going on with the training begun in {folder}")
        kept = tuple(table.features.columns)  # what to leave out was decided when it was read
        model = BIVRegressor(**settings, keep=kept, checkpoint=checkpoint)
        try:
            with warnings.catch_warnings(), naming_cells(table, np.arange(len(table))):
                warnings.simplefilter("ignore", ErrorBarWarning)  # it is in the evidence below
                model.fit(table.features, table.y, y_var=table.variance, sample_weight=table.weight)
        except ValueError:  # of rows or settings that cannot be: there is nothing to go on from
            if not resumes:
                remove(checkpoint)
            raise
        about = {
            "command": command,
            "files": {str(path): count for path, count in table.files.items()},
            "rows": len(table),
            "rows_without_label": table.unlabelled,
            "settings": plain({k: v for k, v in settings.items() if k != "verbose"}),
            "result": summary(model, table.y, table.variance, table.weight),
        }
        evidence = Evidence.of_model(model, table, seed=settings.get("random_state") or 0)
        about["result"]["finding"] = evidence.finding
        about |= {
            "seconds": time.perf_counter() - start,
            "peak_memory_bytes": peak_memory(),
        }
        finished = cls(model, table.schema, table.target, about, evidence, comparison)
        finished.write(folder)
        return finished

    def write(self, folder: Path) -> None:
        """To a folder that the caller holds, in which nothing is unfinished then.

        The model that it held before is there until the new one is complete.
        """
        content = {
            "format": FORMAT,
            "biv": metadata.version("biv"),
            "schema": self.schema.told(),
            "target": asdict(self.target),
            "about": plain(dict(self.about)),
        }
        with Staging(folder, FILES).replacing() as new:
            self.model.save(new / MODEL)
            if self.evidence is not None:
                _write_json(new / EVIDENCE, self.evidence.told(), indent=None)
            if self.comparison is not None:
                _write_json(new / COMPARISON, self.comparison)
            checksums = {name: sha256(new / name) for name in VERIFIED if (new / name).is_file()}
            _write_json(new / ABOUT, content | {"files": checksums})
        for left in folder.glob(UNFINISHED.format("*")):
            remove(left)

    @classmethod
    def read(cls, folder: str | Path, *, for_report: bool = True) -> ModelFolder:
        """What :meth:`train` wrote.

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
            raise ValueError(f"{folder} must be a model folder, with an {ABOUT}; found {found}")
        content = read_about(path, FORMAT)
        schema, target, checksums = content["schema"], content["target"], content.get("files", {})
        model_file, evidence_file, comparison_file = map(files.current, VERIFIED)
        verify(model_file, checksums)
        model = BIVRegressor.load(model_file)
        with _json.damaged(path):
            _require_together(schema, model)
        evidence = comparison = None
        if for_report and verify(evidence_file, checksums):
            evidence = Evidence.read(evidence_file)
        if for_report and verify(comparison_file, checksums):
            comparison = read_comparison(comparison_file, target.name, "is damaged")
        return cls(model, schema, target, content["about"], evidence, comparison)

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


def _digest(table: LabelledTable, settings: Mapping[str, Any]) -> str:
    """What decides a training, in short."""
    deciding = {k: v for k, v in settings.items() if k not in ("n_jobs", "verbose")}
    digest = hashlib.sha256(json.dumps(plain(deciding), sort_keys=True).encode())
    digest.update(json.dumps([table.schema.told(), list(table.features.columns)]).encode())
    hashed = require_pandas().util.hash_pandas_object(table.features, index=False)
    columns = (hashed.to_numpy(), table.y, table.variance, table.weight)
    for column in columns:
        digest.update(b"none" if column is None else np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()[:12]


def summary(
    model: BIVRegressor, y: Floats, variance: Floats | None, weight: Floats | None
) -> dict[str, Any]:
    """What a fit found out, in the units of the labels and in what JSON has.

    Args:
        model: Fitted.
        y: The labels that ``model.out_of_fold_`` is of.
        variance: Their σ².
        weight: Their importance.
    """
    known = model._fitted.new_variance(y, variance, None)
    noise = np.zeros(len(y)) if known is None else known[:, 0]
    epsilon = model.epsilon_
    label_variance = float(model._fitted.labels[0].std) ** 2
    mse, plain_mse = (
        metrics.noise_corrected_mse(
            model.out_of_fold_, y, noise, weighted=weighted, sample_weight=weight
        )
        for weighted in (True, False)
    )
    r2, plain_r2 = (
        metrics.Score(1 - score.value / label_variance, score.stderr / label_variance)
        for score in (mse, plain_mse)
    )
    if weight is None:
        r2, plain_r2 = r2_scores(model.out_of_fold_, y, noise)
    told = {
        "epoch": model.n_epochs_,
        "epochs": len(model.history_),
        "mse": mse.value,
        "mse_stderr": mse.stderr,
        "r2": r2.value,
        "r2_stderr": r2.stderr,
        "r2_all_labels_alike": plain_r2.value,
        "r2_all_labels_alike_stderr": plain_r2.stderr,
        "mse_all_labels_alike": plain_mse.value,
        "mse_all_labels_alike_stderr": plain_mse.stderr,
        "rank_correlation_with_label": label_correlation(y, variance),
        "label_variance": label_variance,
        "tau2": model.tau2_,
        "epsilon": epsilon,
        "relative_epsilon": None if epsilon is None else epsilon / label_variance,
        "effective_sample_size": model.effective_sample_size_,
        "variance_factor": model.variance_factor_,
        "variance_factor_interval": model.variance_factor_interval_,
        "unknown_variance": model.unknown_variance_,
        "history": [float(score) for score in model.history_],
    }
    return dict(plain(told))


def peak_memory() -> int | None:
    """The most that this process has held so far, in bytes; None where that is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
