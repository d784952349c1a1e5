"""What the JSON files of a model folder must hold, and reading them.

Fields that version 0.1 did not write may be missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from biv._utils import typed_json
from biv._utils.messages import shortened
from biv._utils.typed_json import Count, NonNegative, Number, Positive, Scalar
from biv.estimator.findings import FindingTold
from biv.tables import Target
from biv.tables.schema import Schema

COMPARED = "must be what `biv compare --json` prints"


class _Result(TypedDict):
    epoch: Annotated[int, Meta(ge=1)]
    epochs: Count
    mse: Number
    mse_stderr: Number
    r2: Number | None
    r2_stderr: Number | None
    mse_all_labels_alike: Number
    mse_all_labels_alike_stderr: Number
    rank_correlation_with_label: Number
    label_variance: Positive
    tau2: NonNegative
    epsilon: NonNegative | None
    relative_epsilon: NonNegative | None
    effective_sample_size: NonNegative
    variance_factor: Number | None
    variance_factor_interval: tuple[Number | None, Number | None] | None
    unknown_variance: NonNegative | None
    history: list[Number | None]


class Result(_Result, total=False):
    """What a fit found out; the losses are those of a stream."""

    r2_all_labels_alike: Number | None
    r2_all_labels_alike_stderr: Number | None
    finding: FindingTold | None
    train_loss: Annotated[list[Number | None], Meta(min_length=1)]
    train_loss_steps: Count


class _About(TypedDict):
    command: str | None
    files: dict[str, Count]
    rows: Count
    rows_without_label: Count
    settings: dict[str, Scalar | list[Scalar]]
    result: Result
    seconds: NonNegative
    peak_memory_bytes: Count | None


class About(_About, total=False):
    """How a model came about; what may be missing is of a stream."""

    rows_held_out: Count
    processes: Count
    shards: Count
    steps: Count


class _AboutFile(TypedDict):
    schema: Schema
    target: Target
    about: About


class AboutFile(_AboutFile, total=False):
    """What about.json holds; `files` are the SHA-256 of the others, which 0.1 did not write."""

    biv: str
    files: dict[str, str]


class Difference(TypedDict):
    """How much lower one error is than another, with its interval."""

    value: Number
    low: Number
    high: Number


class _Method(TypedDict):
    method: str
    mse: Number
    mse_stderr: Number
    above_best: Number
    above_best_stderr: Number
    as_good_as_best: bool
    seconds: NonNegative
    chosen: str


class Method(_Method, total=False):
    """One of the methods that were compared."""

    mse_over_label_variance: Number
    shown_worse_than_best: bool


class _Comparison(TypedDict):
    target: str
    rows: Count
    rows_in_all: Count
    folds: Count
    label_variance: Positive
    methods: Annotated[list[Method], Meta(min_length=1)]
    failed: dict[str, str]
    gain: Difference
    control: Difference
    gain_all_labels_alike: Difference | None
    recommendation: str


class ComparisonTold(_Comparison, total=False):
    """What `biv compare --json` prints."""

    rows_of_unknown_variance: Count
    unknown_variance: NonNegative | None
    weighted_scores: bool
    rank_correlation_with_label: Number | None
    finding: FindingTold | None
    use_error_bars: bool | None


def read_about(path: Path, form: str) -> AboutFile:
    """Return what about.json holds.

    Raises:
        ValueError: It is damaged, or of another version.
    """
    found = typed_json.read(path, AboutFile, form)
    with typed_json.damaged(path):
        result = found["about"]["result"]
        scores, epoch = result["history"], result["epoch"]
        if epoch > len(scores) or scores[epoch - 1] is None:
            raise ValueError(f"about.result.history must have a score of epoch {epoch}")
        if result["epsilon"] is not None and result["relative_epsilon"] is None:
            raise ValueError("about.result.relative_epsilon must be a number, as epsilon is")
        for name in ("r2", "r2_all_labels_alike"):
            if result.get(name) is not None and result.get(f"{name}_stderr") is None:
                raise ValueError(f"about.result.{name}_stderr must be a number, as {name} is")
    return found


def read_comparison(path: Path, target: str, what: str = COMPARED) -> ComparisonTold:
    """Return a comparison of methods on one label.

    Args:
        path: What `biv compare --json` printed.
        target: The label.
        what: Is said of a file that is something else.

    Raises:
        ValueError: It is something else, or of another label.
    """
    found = typed_json.read(path, ComparisonTold, what=what)
    if found["target"] != target:
        raise ValueError(
            f"{path} must be a comparison of the label {shortened(target)}; found "
            f"{shortened(found['target'])}"
        )
    return found


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def verify(path: Path, checksums: Mapping[str, Any]) -> bool:
    """Whether there is a file, which is then what it was when its checksum was taken, if one was.

    Raises:
        ValueError: It is something else, or there is no file although it has a checksum.
    """
    wanted = checksums.get(path.name)
    if not path.is_symlink() and not path.exists():
        if wanted is not None:
            raise ValueError(f"{path} is missing: train the model again, or restore a copy")
        return False
    if not path.is_file():
        raise ValueError(f"{path} must be a regular file")
    if wanted is not None and sha256(path) != wanted:
        raise ValueError(
            f"{path} is damaged: its checksum does not match: train the model again, or restore a "
            "copy"
        )
    return True
