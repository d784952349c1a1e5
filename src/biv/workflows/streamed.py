"""A model from a table larger than memory, by one process or by those of `torchrun`."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biv._utils import typed_json, validation
from biv._utils.messages import shortened
from biv._utils.progress import progress_bar
from biv._utils.warnings import warn
from biv._utils.wording import STREAM_OPTIONS, Message, Setting
from biv.estimator.error_bars import ErrorBars
from biv.estimator.fitted import Fitted, Part
from biv.estimator.fitting import Fitting, raw
from biv.estimator.model_file import plain
from biv.estimator.regressor import BIVRegressor
from biv.losses import modules, registry
from biv.losses.modules import VarianceLoss
from biv.models import MLP
from biv.tables import LabelledTable, Target
from biv.tables.files import Files
from biv.tables.labelled import chosen_columns, require_columns
from biv.tables.row_groups import RowGroups, deal
from biv.tables.schema import Guess, Schema, looked_at
from biv.tables.stream import Encoding, Shard, Stream
from biv.tables.survey import Reader, Rows, Survey
from biv.training import CrossFit, Schedule, Triplets
from biv.training.checkpoint import require_like
from biv.training.held_out import warn_if_negative
from biv.training.machine import steady_machine
from biv.training.ranks import Ranks
from biv.training.streamed import INCOMPLETE, Judge, StreamedTraining, read_checkpoint
from biv.workflows.checks import column_remarks, refuse_copies
from biv.workflows.comparison_record import ComparisonRecord
from biv.workflows.evidence import TableEvidence
from biv.workflows.model_folder import ModelFolder
from biv.workflows.room import UNFINISHED, held, require_free, require_room
from biv.workflows.training_record import FitRecord, TrainingRecord, peak_memory

SHARDS = 12  # at least: 1, 2, 3, 4 and 6 processes share them evenly, and have the same batches
PILOT_ROWS = 8_192  # that the embedding is chosen on
FEWEST_PILOT_ROWS = 64
FIRST_EPSILON = 0.05
MOST_LOSSES = 10_000  # that are kept of a training
TINY = 1e-300  # in the place of τ² = 0, for trusted labels to have a weight


@dataclass(frozen=True)
class StreamSettings:
    """How a table in pieces is learned from.

    Attributes:
        loss: Name of a loss of :mod:`biv.losses.registry`.
        epsilon: "auto": .05 in the first epoch, then the τ² of the rows held out, after every one;
            or a number in units of the label variance.
        threshold: Of "cutoff", in squared units of y; None takes the mean of the variances.
        max_epochs: Passes over the rows at most.
        patience: Epochs without a score better by 1 % before it stops.
        batch_size: Rows a step, of all processes together.
        learning_rate: Of AdamW; None is the estimator's own.
        unknown_variance: "raise" or "median".
        shards: That the row groups are dealt to; None is as many as processes share evenly.
        seed: Of all that is drawn.
    """

    loss: str = "biv"
    epsilon: float | str = "auto"
    threshold: float | None = None
    max_epochs: int = 100
    patience: int = 4
    batch_size: int = 1024
    learning_rate: float | None = None
    unknown_variance: str = "raise"
    shards: int | None = None
    seed: int = 0


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
    say: Callable[[str], object] = lambda _: None,
    progress: bool = True,
    comparison: ComparisonRecord | None = None,
    command: str | None = None,
) -> ModelFolder | None:
    """Train one network on Parquet files that are never wholly in memory, and write its folder.

    Every process calls this alike. The rows are dealt to them by row group; one in ten, 65,536 at
    most, are held out to choose the epoch by and to estimate the model's own error.

    Args:
        folder: For the model; until it is finished it holds a checkpoint, that the same call goes
            on from. Only the first process reads and writes it.
        paths: Parquet files, and folders of them, that every process can read.
        target: Where the labels are.
        settings: Of the training.
        ranks: This process, and those that it trains with.
        features: Columns to learn from; None for all that `target` does not name.
        ignore: Columns to leave out.
        keep: Columns to learn from even if they look like identifiers, as those that `features`
            names, or like copies of the label.
        categories: Columns whose numbers are names.
        force: Whether to replace a finished model, or an unfinished training of other rows or
            settings.
        threads: Of this process.
        checkpoint_seconds: How often to save.
        say: Is told what is being done, by the first process.
        progress: Whether it shows a bar on a terminal.
        comparison: Is kept beside the model, for its report.
        command: That it is trained by, likewise.

    Returns:
        The model, on the first process.

    Raises:
        ValueError: Something is wrong with the files, before training starts.
    """
    start, folder = time.perf_counter(), Path(folder)
    told = say if ranks.is_first else (lambda _: None)
    table = ranks.together(lambda: RowGroups(Files(paths)))
    ranks.together(lambda: _require_same(ranks, table))
    ranks.from_first(lambda: require_free(folder, force=force))
    shards = settings.shards or _shards(ranks.size, len(table))
    dealt = ranks.together(lambda: _dealt(table, shards, ranks.size))
    groups = range(ranks.rank, len(table), ranks.size)
    schema = _schema(ranks, table, target, groups, features, ignore, keep, categories)
    reader = Reader(table, schema, target, settings.unknown_variance, settings.seed)
    told(
        f"{table.rows:,} rows in {len(table)} row groups; {len(schema.columns)} columns to learn "
        "from."
    )
    surveys = _surveys(ranks, reader, groups, progress=progress)
    survey = Survey.whole([surveys[group] for group in range(len(table))])
    ranks.together(lambda: _require_learnable(survey, surveys, dealt, table, target, settings))
    held_out = Rows.joined(survey.held_out)
    if ranks.is_first:
        _tell_of_gaps(survey, target)
        for remark in column_remarks(schema, held_out.features, keep):
            warn(remark)
    ranks.together(lambda: _require_no_leak(table, target, held_out, keep))
    checkpoint = folder / UNFINISHED.format(_digest(table, schema, target, settings))
    with _held_by_first(ranks, folder):  # until the model is in it
        ranks.from_first(lambda: require_room(folder, checkpoint, force=force))
        state, plan = ranks.from_first(
            lambda: _begun(checkpoint, survey, held_out, settings, shards)
        )
        if state is not None:
            with typed_json.damaged(checkpoint, INCOMPLETE):
                told(f"going on with the training begun in {folder}, at step {state['step']:,}")
                # Whatever the number of processes that it was begun by.
                shards = validation.integer(
                    "shards", plan["shards"], at_least=1, at_most=len(table)
                )
            dealt = ranks.together(lambda: _dealt(table, shards, ranks.size))
        mine = [shard for shard in range(shards) if shard % ranks.size == ranks.rank]
        with typed_json.damaged(checkpoint, INCOMPLETE):
            encoding = Encoding.from_json(plan["encoding"])
            recipe = typed_json.convert(plan["recipe"], MLP)
            learning_rate = typed_json.convert(plan["learning_rate"], float)
        learned = {group: own.learned for group, own in surveys.items()}
        stream = Stream(
            [Shard(s, dealt[s], learned, reader, encoding, settings.seed) for s in mine],
            survey.learned,
            settings.batch_size,
        )
        automatic = settings.epsilon == "auto"
        training = StreamedTraining(
            recipe(torch.Generator().manual_seed(settings.seed)),
            _losses(settings, survey, encoding, ranks, noisy=bool(target.error_bars)),
            stream,
            Judge(encoding(held_out), ranks),
            Schedule(
                epochs=settings.max_epochs,
                batch_size=settings.batch_size,
                test_every=None,
                optimizer="adamw",
                weight_decay=0.01,
                averaging=2.0,
            ),
            learning_rate,
            FIRST_EPSILON if automatic else float(settings.epsilon),
            follows=automatic,
            patience=settings.patience,
            ranks=ranks,
            device=_device(),
        )
        if state is not None:
            with typed_json.damaged(checkpoint, INCOMPLETE):
                require_like(training.state_dict(), state)
                training.load_state_dict(state)
        with steady_machine(threads):
            training.run(checkpoint, seconds=checkpoint_seconds, about=plan, progress=progress)
        if not ranks.is_first:
            return None
        if training.choice.epoch == settings.max_epochs:
            warn(
                Message(
                    "the last of {epochs} epochs was the best: with more it may become better",
                    epochs=Setting("max_epochs", settings.max_epochs),
                )
            )
        warn_if_negative(min(training.choice.scores))
        files = {path: _rows_of(table, path) for path in table.files.paths}
        model = _regressor(training, encoding, recipe, survey, held_out, settings)
        result = FitRecord.of(model, held_out.y, held_out.variance, held_out.weight)
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
        evidence = TableEvidence.of_model(model, rows, seed=settings.seed, wording=STREAM_OPTIONS)
        evidence = replace(evidence, rows=survey.rows)
        losses, steps = _thinned(training.losses)
        about = TrainingRecord(
            command=command,
            files={str(path): count for path, count in files.items()},
            rows=survey.rows,
            rows_without_label=survey.unlabelled,
            rows_held_out=len(held_out),
            processes=ranks.size,
            shards=shards,
            steps=training.step,
            settings=plain(asdict(settings) | {"calibrate_variance": False}),
            result=replace(
                result, train_loss=losses, train_loss_steps=steps, finding=evidence.finding
            ),
            seconds=time.perf_counter() - start,
            peak_memory_bytes=peak_memory(),
        )
        finished = ModelFolder(model, schema, target, about, evidence, comparison)
        finished.write(folder)
        return finished


def _rows_of(table: RowGroups, path: Path) -> int:
    return sum(group.rows for group in table.groups if group.path == path)


def _require_same(ranks: Ranks, table: RowGroups) -> None:
    """Processes on several machines must have the same files."""
    own = [(group.path.name, group.number, group.rows) for group in table.groups]
    digest = hashlib.sha256(repr(own).encode()).hexdigest()
    if len(set(ranks.gather(digest))) > 1:
        raise ValueError(f"every process must have the same files; {table.files} differ")


def _shards(processes: int, groups: int) -> int:
    """Those of a new training: so many that processes share them evenly, if there are as many."""
    even = -(-SHARDS // processes) * processes
    return even if even <= groups else max(min(groups, SHARDS), processes)


def _dealt(table: RowGroups, shards: int, processes: int) -> list[list[int]]:
    if shards < processes:
        raise ValueError(
            f"{processes} processes want as many shards at least; found {shards}: start fewer"
        )
    return deal([group.rows for group in table.groups], shards)


def _schema(
    ranks: Ranks,
    table: RowGroups,
    target: Target,
    groups: Sequence[int],
    features: Sequence[str] | None,
    ignore: Sequence[str],
    keep: Sequence[str],
    categories: Sequence[str],
) -> Schema:
    """What the columns mean: by their types where those say it, else by one more pass."""
    names = ranks.together(
        lambda: chosen_columns(table.files, target, features, ignore, keep, categories)
    )
    known = {name: Guess.by_type(table.schema.field(name)) for name in names}
    unclear = [name for name, guess in known.items() if guess is None and name not in categories]
    if unclear:
        looks = ranks.together(
            lambda: looked_at(unclear, (table.read(group, unclear) for group in groups))
        )
        for several in zip(*ranks.gather(looks), strict=True):
            known[several[0].name] = reduce(or_, several)
    guesses = [guess or Guess(name) for name, guess in known.items()]
    kept = (*keep, *(features or ()))
    schema = ranks.together(lambda: Schema.agreed(guesses, categories, kept))
    ranks.together(lambda: require_columns(schema, table.files))
    return schema


def _surveys(
    ranks: Ranks, reader: Reader, groups: Sequence[int], *, progress: bool
) -> dict[int, Survey]:
    """Of every row group; each process looks at its own."""
    shown = progress and ranks.is_first

    def look() -> dict[int, Survey]:
        found = {}
        with progress_bar(len(groups), "reading", enabled=shown, unit="row group") as bar:
            for group in groups:
                found[group] = Survey.of(reader, group)
                bar.update()
        return found

    own = ranks.together(look)
    return {group: survey for part in ranks.gather(own) for group, survey in part.items()}


def _require_no_leak(table: RowGroups, target: Target, held_out: Rows, keep: Sequence[str]) -> None:
    """Refuse wrong intervals and copies of the label, by the rows held out."""
    target.require_inside(table.files, held_out.y, held_out.ends)
    refuse_copies(table.files, target, held_out.features, held_out.y, held_out.ends, keep)


def _tell_of_gaps(survey: Survey, target: Target) -> None:
    if survey.unlabelled:
        warn(f"{survey.unlabelled:,} rows have no {shortened(target.name)} and were left out")
    if survey.unknown:
        warn(
            f"the variance of {survey.unknown:,} labels is unknown, and was taken to be "
            f"{survey.labels.median_variance:.4g}"
        )


def _thinned(losses: Sequence[float]) -> tuple[list[float | None], int]:
    """The loss of every step, or the mean of so many steps that there are not too many numbers."""
    every = -(-len(losses) // MOST_LOSSES)
    means = [float(np.mean(losses[k : k + every])) for k in range(0, len(losses), every)]
    return plain(means), every


def _require_learnable(
    survey: Survey,
    surveys: Mapping[int, Survey],
    dealt: Sequence[Sequence[int]],
    table: RowGroups,
    target: Target,
    settings: StreamSettings,
) -> None:
    """Refuse what no model can learn from."""
    if not survey.rows:
        raise ValueError(
            f"{table.files} must have rows with a {shortened(target.name)}; found none"
        )
    for number, groups in enumerate(dealt):
        if not sum(surveys[group].learned for group in groups):
            paths = sorted({str(table.groups[group].path) for group in groups})
            raise ValueError(
                Message(
                    "shard {number} of {count} has no row to learn from ({paths}): every shard "
                    "must have rows with a {label}; choose fewer with {shards}",
                    number=number,
                    count=len(dealt),
                    paths=", ".join(paths[:3]),
                    label=shortened(target.name),
                    shards=Setting("shards"),
                )
            )
    if not survey.labels.count:
        names = " and ".join(map(shortened, target.error_bars))
        raise ValueError(f"{table.files}: no error bar in column {names} is known: leave it out")
    if target.error_bars and survey.labels.mean_variance == 0:
        names = " and ".join(map(shortened, target.error_bars))
        raise ValueError(
            f"{table.files}: every error bar in column {names} is 0: if the labels are without "
            "noise, leave it out"
        )
    accepted = registry.get(settings.loss).accepts_zero_variance
    if not accepted and target.error_bars and survey.labels.trusted:
        names = " and ".join(map(shortened, target.error_bars))
        raise ValueError(
            Message(
                "{files}: {count:,} error bars in column {names} are 0, to which {loss} would give "
                "an infinite weight: biv takes them",
                files=table.files,
                count=survey.labels.trusted,
                names=names,
                loss=Setting("loss", settings.loss),
            )
        )
    if sum(map(len, survey.held_out)) < 2:
        raise ValueError(
            f"{table.files} must have more rows than the {survey.rows} found: one in ten is held "
            "out to choose the epoch by. A small table is learned from in memory, without torchrun "
            "and --stream"
        )
    survey.scaler()


def _digest(table: RowGroups, schema: Schema, target: Target, settings: StreamSettings) -> str:
    """What decides a training, in short; not the number of processes, which may change."""
    states = [(p.name, p.stat()) for p in table.files.paths]
    files = [(name, state.st_size, state.st_mtime_ns) for name, state in states]
    groups = [(group.number, group.rows) for group in table.groups]
    own = plain(asdict(settings))
    text = json.dumps([files, groups, schema.to_json(), asdict(target), own], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def _held_by_first(ranks: Ranks, folder: Path) -> Iterator[None]:
    """Hold the folder on the first process, for all; if it cannot be held, all of them stop."""
    with ExitStack() as stack:
        ranks.from_first(lambda: stack.enter_context(held(folder)))
        yield


def _begun(
    checkpoint: Path, survey: Survey, held_out: Rows, settings: StreamSettings, shards: int
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The state of a checkpoint, if there is one; and how rows are dealt, scaled, learned from."""
    if checkpoint.is_file():
        return read_checkpoint(checkpoint)
    median = survey.labels.median_variance if settings.unknown_variance == "median" else None
    encoding = Encoding(survey.encoder(), survey.features(), survey.scaler(), median)
    recipe, rate = _network(encoding, held_out, settings)
    return None, {
        "shards": shards,
        "encoding": encoding.to_json(),
        "recipe": asdict(recipe),
        "learning_rate": settings.learning_rate or rate,
    }


def _network(encoding: Encoding, held_out: Rows, settings: StreamSettings) -> tuple[MLP, float]:
    """The estimator's own, its embedding chosen by short trainings; and its learning rate."""
    every = -(-len(held_out) // PILOT_ROWS)
    batch = encoding(held_out[np.arange(0, len(held_out), every)])
    rows = Triplets(*(None if c is None else torch.tensor(c) for c in tuple(batch)))  # type: ignore[arg-type]
    estimator = BIVRegressor(random_state=settings.seed)
    recipes = [r for r in estimator._networks(rows.x, encoding.encoder) if isinstance(r, MLP)]
    weighs = rows.variance is not None and registry.get(settings.loss).uses_variance
    loss: VarianceLoss = modules.BIVLoss(FIRST_EPSILON) if weighs else modules.L2Loss()

    def score(recipe: MLP) -> float:
        fitted = estimator._cross_fit(recipe, rows, loss, settings.seed, pilot=True)
        return float(fitted.scores.min())

    best = recipes[0]
    if len(recipes) > 1 and len(rows) >= FEWEST_PILOT_ROWS:
        with steady_machine():
            best = min(recipes, key=score)
    return best, estimator._learning_rate(best)


def _losses(
    settings: StreamSettings, survey: Survey, encoding: Encoding, ranks: Ranks, *, noisy: bool
) -> Callable[[float], VarianceLoss]:
    """By ε, in units of the label variance."""
    loss = registry.get(settings.loss if noisy else "l2")
    fixed: dict[str, Any] = {"process_group": ranks.aside}
    if "threshold" in loss.tuned:
        threshold = settings.threshold
        if threshold is None:
            threshold = survey.labels.mean_variance
        fixed["threshold"] = float(encoding.labels.variance(threshold))
    if "epsilon" in loss.tuned:
        return lambda epsilon: loss.create(epsilon=epsilon, **fixed)
    return lambda _: loss.create(**fixed)


def _device() -> torch.device:
    """A GPU of this process's own where there is one."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def _regressor(
    training: StreamedTraining,
    encoding: Encoding,
    recipe: MLP,
    survey: Survey,
    held_out: Rows,
    settings: StreamSettings,
) -> BIVRegressor:
    """The network as it was at its best, with all that leads to it and back."""
    choice = training.choice
    module = recipe(torch.Generator())
    module.load_state_dict(choice.best)
    bars = None if held_out.variance is None else ErrorBars(held_out.variance[:, None], "y_var")
    fitting = Fitting(
        torch.empty(0), held_out.y[:, None], held_out.weight, bars, settings.unknown_variance
    )
    fitting.scalers = [encoding.labels]
    if encoding.unknown is not None:
        fitting.fill = np.array([encoding.unknown])
    story = fitting.story(raw(fitting.scalers, choice.predicted.double().numpy()))
    if bars is not None:
        size = survey.labels.effective_sample_size(max(story.tau2[0], TINY))
        story = story._replace(effective_sample_size=size)
    ensemble = CrossFit(
        [module.eval()],
        choice.epoch,
        np.array(choice.scores),
        choice.predicted,
        story.tau2[0] / encoding.labels.std**2,
    )
    tuned = "epsilon" in registry.get(settings.loss).tuned and bars is not None
    epsilon = training.epsilons[choice.epoch - 1] if tuned else None
    fitted = Fitted(
        True,
        encoding.encoder,
        [Part(encoding.features, [encoding.labels], recipe, ensemble, story, epsilon)],
        calibrated=False,
    )
    names = list(map(str, held_out.features.columns))
    like_it = BIVRegressor(  # fitted again in memory, it would be an ensemble
        loss=settings.loss,
        epsilon=settings.epsilon,
        threshold=settings.threshold,
        max_epochs=settings.max_epochs,
        learning_rate=settings.learning_rate,
        unknown_variance=settings.unknown_variance,
        random_state=settings.seed,
    )
    return like_it._holding(fitted, names)
