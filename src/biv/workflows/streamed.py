"""Train a model on a table larger than memory, in one process or in those of `torchrun`."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from biv._utils import typed_json
from biv._utils.warnings import warn
from biv._utils.wording import STREAM_OPTIONS, Message, Setting
from biv.estimator.ensembles import AVERAGING, WEIGHT_DECAY
from biv.estimator.fit_output import PILOT_EPSILON
from biv.losses import registry
from biv.losses.modules import VarianceLoss
from biv.tables import LabelledTable, Target
from biv.tables.files import Files
from biv.tables.row_groups import RowGroups
from biv.tables.schema import Schema
from biv.tables.stream import Encoding, Shard, Stream
from biv.tables.survey import Reader, Rows, Survey
from biv.training import Schedule
from biv.training.checkpoint import require_like
from biv.training.held_out import warn_if_negative
from biv.training.numerics import numerical_settings
from biv.training.ranks import Ranks
from biv.training.streamed import (
    INCOMPLETE_CHECKPOINT,
    HeldOutRows,
    StreamedTraining,
    read_checkpoint,
)
from biv.workflows.checks import column_remarks
from biv.workflows.comparison_record import ComparisonRecord
from biv.workflows.evidence import TableEvidence
from biv.workflows.model_folder import ModelFolder
from biv.workflows.stream_checks import (
    assign_shards,
    default_shards,
    require_learnable_stream,
    require_no_leak,
    require_same_files,
    warn_about_missing,
)
from biv.workflows.stream_model import fitted_regressor
from biv.workflows.stream_plan import StreamPlan, StreamSettings
from biv.workflows.stream_survey import ColumnChoice, agreed_schema, survey_row_groups
from biv.workflows.training_folder import (
    UNFINISHED,
    locked_folder,
    prepare_folder,
    require_no_model,
)
from biv.workflows.training_record import FitRecord, TrainingRecord, peak_memory

MAX_LOSSES = 10_000  # largest number of training losses that are kept


def train_streamed(
    folder: str | Path,
    paths: Sequence[str | Path],
    target: Target,
    settings: StreamSettings,
    *,
    ranks: Ranks,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
    categories: Sequence[str] = (),
    force: bool = False,
    threads: int = 1,
    checkpoint_seconds: float = 60.0,
    log: Callable[[str], object] = lambda _: None,
    progress: bool = True,
    comparison: ComparisonRecord | None = None,
    command: str | None = None,
) -> ModelFolder | None:
    """Train one network on Parquet files that are never wholly in memory, and write its folder.

    Every process makes the same call. The processes share the rows by row group. One row in ten, at
    most 65,536, is held out to choose the epoch and to estimate the model's own error.

    Parameters
    ----------
    folder : str or Path
        Folder of the model. Until the training is finished it holds a checkpoint, from which the
        same call resumes. Only the first process reads and writes the folder.
    paths : sequence of str or Path
        Parquet files, and folders of them, that every process can read.
    target : Target
        Columns of the labels.
    settings : StreamSettings
        Settings of the training.
    ranks : Ranks
        All processes of the training.
    features : sequence of str or None, default=None
        Feature columns; None for all columns that `target` does not name.
    ignore : sequence of str, default=()
        Columns to leave out.
    keep : sequence of str, default=()
        Columns to use even if they look like identifiers or copies of the label.
    categories : sequence of str, default=()
        Numeric columns to treat as categories (for example, post codes).
    force : bool, default=False
        Whether to replace a finished model, or an unfinished run with other rows or settings.
    threads : int, default=1
        Number of threads of this process.
    checkpoint_seconds : float, default=60.0
        Seconds between two saves.
    log : callable, optional
        Called by the first process with messages about the progress.
    progress : bool, default=True
        Whether the first process shows a progress bar on a terminal.
    comparison : ComparisonRecord or None, default=None
        Comparison of methods that the model's report shows.
    command : str or None, default=None
        Command that trained the model, for its report.

    Returns
    -------
    ModelFolder or None
        The model on the first process, None on the others.

    Raises
    ------
    ValueError
        If the files cannot be trained on; this is found before training starts.
    """
    start, folder = time.perf_counter(), Path(folder)
    write_line = log if ranks.is_first else (lambda _: None)
    table = ranks.run_on_all(lambda: RowGroups(Files(paths)))
    ranks.run_on_all(lambda: require_same_files(ranks, table))
    ranks.run_on_first(lambda: require_no_model(folder, force=force))
    shards = settings.shards or default_shards(ranks.size, len(table))
    groups_of_shard = ranks.run_on_all(lambda: assign_shards(table, shards, ranks.size))
    columns = ColumnChoice(features, ignore, keep, categories)
    surveyed = _survey_table(ranks, table, target, columns, settings, write_line, progress=progress)
    _check_survey(ranks, surveyed, groups_of_shard, keep, settings)
    digest = _digest(table, surveyed.reader.schema, target, settings)
    checkpoint = folder / UNFINISHED.format(digest)
    with _locked_by_first(ranks, folder):  # until the model is written
        ranks.run_on_first(lambda: prepare_folder(folder, checkpoint, force=force))
        state, content = ranks.run_on_first(
            lambda: _state_and_plan(checkpoint, surveyed, settings, shards)
        )
        if state is not None:
            with typed_json.errors_name_file(checkpoint, INCOMPLETE_CHECKPOINT):
                write_line(f"resuming the training in {folder} at step {state['step']:,}")
        plan = StreamPlan.from_json(content, checkpoint, row_groups=len(table))
        training = _training(ranks, surveyed, plan, settings)
        if state is not None:
            with typed_json.errors_name_file(checkpoint, INCOMPLETE_CHECKPOINT):
                require_like(training.state_dict(), state)
                training.load_state_dict(state)
        with numerical_settings(threads):
            training.run(
                checkpoint, seconds=checkpoint_seconds, metadata=content, progress=progress
            )
        if not ranks.is_first:
            return None
        _warn_about_epochs(training, settings)
        model_folder = _build_model_folder(
            surveyed, plan, training, settings, comparison, command, start
        )
        model_folder.write(folder)
        return model_folder


@dataclass(frozen=True, eq=False)
class _SurveyedTable:
    """A streamed table after its first pass.

    Attributes
    ----------
    reader : Reader
        Reader of its row groups.
    surveys : mapping of int to Survey
        Survey of every row group, by its number.
    survey : Survey
        Survey of the whole table.
    held_out : Rows
        Rows that are not trained on.
    """

    reader: Reader
    surveys: Mapping[int, Survey]
    survey: Survey
    held_out: Rows

    @property
    def table(self) -> RowGroups:
        """Row groups of the table."""
        return self.reader.groups


def _survey_table(
    ranks: Ranks,
    table: RowGroups,
    target: Target,
    columns: ColumnChoice,
    settings: StreamSettings,
    write_line: Callable[[str], object],
    *,
    progress: bool,
) -> _SurveyedTable:
    """Find the schema of the table and survey it; the processes share the reading."""
    groups = range(ranks.rank, len(table), ranks.size)
    schema = agreed_schema(ranks, table, target, groups, columns)
    reader = Reader(table, schema, target, settings.unknown_variance, settings.seed)
    count = len(schema.columns)
    write_line(
        f"{table.rows:,} rows in {len(table)} row groups; {count} "
        f"{'column' if count == 1 else 'columns'} to learn from.\n"
    )
    surveys = survey_row_groups(ranks, reader, groups, progress=progress)
    survey = Survey.combine([surveys[group] for group in range(len(table))])
    return _SurveyedTable(reader, surveys, survey, Rows.concatenate(survey.held_out))


def _check_survey(
    ranks: Ranks,
    surveyed: _SurveyedTable,
    groups_of_shard: Sequence[Sequence[int]],
    keep: Sequence[str],
    settings: StreamSettings,
) -> None:
    """Check that a model can be trained on the table, and warn about doubtful columns."""
    table, target, held_out = surveyed.table, surveyed.reader.target, surveyed.held_out
    survey, surveys = surveyed.survey, surveyed.surveys
    ranks.run_on_all(
        lambda: require_learnable_stream(survey, surveys, groups_of_shard, table, target, settings)
    )
    if ranks.is_first:
        warn_about_missing(survey, target)
        for remark in column_remarks(surveyed.reader.schema, held_out.features, keep):
            warn(remark)
    ranks.run_on_all(lambda: require_no_leak(table, target, held_out, keep))


def _state_and_plan(
    checkpoint: Path, surveyed: _SurveyedTable, settings: StreamSettings, shards: int
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the state of a checkpoint, if there is one, and the plan in JSON."""
    if checkpoint.is_file():
        return read_checkpoint(checkpoint)
    plan = StreamPlan.of(surveyed.survey, surveyed.held_out, settings, shards)
    return None, plan.to_json()


def _training(
    ranks: Ranks, surveyed: _SurveyedTable, plan: StreamPlan, settings: StreamSettings
) -> StreamedTraining:
    """Return the training of this process, at its first step."""
    groups_of_shard = ranks.run_on_all(
        lambda: assign_shards(surveyed.table, plan.shards, ranks.size)
    )
    training_rows = {group: survey.training_rows for group, survey in surveyed.surveys.items()}
    reader, encoding = surveyed.reader, plan.encoding
    stream = Stream(
        [
            Shard(shard, groups_of_shard[shard], training_rows, reader, encoding, settings.seed)
            for shard in range(ranks.rank, plan.shards, ranks.size)
        ],
        surveyed.survey.training_rows,
        settings.batch_size,
    )
    noisy = bool(reader.target.error_bars)
    automatic = settings.epsilon == "auto"
    return StreamedTraining(
        plan.network(torch.Generator().manual_seed(settings.seed)),
        _losses(settings, surveyed.survey, encoding, ranks, noisy=noisy),
        stream,
        HeldOutRows(encoding(surveyed.held_out), ranks),
        Schedule(
            epochs=settings.max_epochs,
            batch_size=settings.batch_size,
            test_every=None,
            optimizer="adamw",
            weight_decay=WEIGHT_DECAY,
            averaging=AVERAGING,
        ),
        plan.learning_rate,
        PILOT_EPSILON if automatic else float(settings.epsilon),
        update_epsilon=automatic,
        patience=settings.patience,
        ranks=ranks,
        device=_device(),
    )


def _warn_about_epochs(training: StreamedTraining, settings: StreamSettings) -> None:
    if training.stopping.epoch == settings.max_epochs:
        warn(
            Message(
                "the last of {epochs} epochs was the best: more epochs may improve the model",
                epochs=Setting("max_epochs", settings.max_epochs),
            )
        )
    warn_if_negative(min(training.stopping.scores))


def _build_model_folder(
    surveyed: _SurveyedTable,
    plan: StreamPlan,
    training: StreamedTraining,
    settings: StreamSettings,
    comparison: ComparisonRecord | None,
    command: str | None,
    start: float,
) -> ModelFolder:
    """Return the model with the evidence for its report."""
    table, survey, held_out = surveyed.table, surveyed.survey, surveyed.held_out
    schema, target = surveyed.reader.schema, surveyed.reader.target
    model = fitted_regressor(training, plan, survey, held_out, settings)
    files = {path: _count_rows(table, path) for path in table.files.paths}
    rows = LabelledTable(
        held_out.features,
        held_out.y,
        held_out.variance,
        held_out.weight,
        held_out.places,
        survey.unlabelled,
        files,
        schema,
        target,
    )
    evidence = TableEvidence.from_model(model, rows, seed=settings.seed, wording=STREAM_OPTIONS)
    evidence = msgspec.structs.replace(evidence, rows=survey.rows)
    losses, steps = _downsample(training.losses)
    result = FitRecord.of(model, held_out.y, held_out.variance, held_out.weight)
    about = TrainingRecord(
        command=command,
        files={str(path): count for path, count in files.items()},
        rows=survey.rows,
        rows_without_label=survey.unlabelled,
        rows_held_out=len(held_out),
        processes=training.ranks.size,
        shards=plan.shards,
        steps=training.step,
        settings=typed_json.to_json(asdict(settings) | {"calibrate_variance": False}),
        result=replace(result, train_loss=losses, train_loss_steps=steps, finding=evidence.finding),
        seconds=time.perf_counter() - start,
        peak_memory_bytes=peak_memory(),
    )
    return ModelFolder(model, schema, target, about, evidence, comparison)


def _count_rows(table: RowGroups, path: Path) -> int:
    return sum(group.rows for group in table.groups if group.path == path)


def _downsample(losses: Sequence[float]) -> tuple[list[float | None], int]:
    """Return means of the losses over steps, at most 10,000 of them, and the steps per mean."""
    every = -(-len(losses) // MAX_LOSSES)
    means = [float(np.mean(losses[k : k + every])) for k in range(0, len(losses), every)]
    return typed_json.to_json(means), every


def _digest(table: RowGroups, schema: Schema, target: Target, settings: StreamSettings) -> str:
    """Return a digest of everything that affects the training; not of the number of processes."""
    states = [(p.name, p.stat()) for p in table.files.paths]
    files = [(name, state.st_size, state.st_mtime_ns) for name, state in states]
    groups = [(group.number, group.rows) for group in table.groups]
    chosen = typed_json.to_json(asdict(settings))
    text = json.dumps([files, groups, schema.to_json(), asdict(target), chosen], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def _locked_by_first(ranks: Ranks, folder: Path) -> Iterator[None]:
    """Lock the folder on the first process, for all; if that fails, all processes stop."""
    with ExitStack() as stack:
        ranks.run_on_first(lambda: stack.enter_context(locked_folder(folder)))
        yield


def _losses(
    settings: StreamSettings, survey: Survey, encoding: Encoding, ranks: Ranks, *, noisy: bool
) -> Callable[[float], VarianceLoss]:
    """Return a function from ε, in units of the label variance, to the loss."""
    loss = registry.for_labels(settings.loss, have_variances=noisy)
    fixed: dict[str, Any] = {"process_group": ranks.side_group}
    if "threshold" in loss.user_settings:
        threshold = settings.threshold
        if threshold is None:
            threshold = survey.labels.mean_variance
        fixed["threshold"] = float(encoding.label_scaler.variance(threshold))
    if "epsilon" in loss.user_settings:
        return lambda epsilon: loss.create(epsilon=epsilon, **fixed)
    return lambda _: loss.create(**fixed)


def _device() -> torch.device:
    """Return the GPU of this process, or the CPU if there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
