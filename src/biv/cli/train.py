"""`biv train`: train a model on a table with error bars."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biv._utils.command_line import describe_command
from biv._utils.pages import argument_hint
from biv._utils.torchrun import launched_by_torchrun
from biv.cli import _table_options
from biv.losses import registry

if TYPE_CHECKING:
    from biv.training.ranks import Ranks
    from biv.workflows import ModelFolder
    from biv.workflows.comparison_record import ComparisonRecord

STREAMED = (
    "batch_size",
    "learning_rate",
    "shards",
    "checkpoint_seconds",
)  # options for a stream only

DESCRIPTION = """Train a model on a table with error bars. The model is an ensemble of networks.
It is written to a folder, which `biv predict` reads."""

EXAMPLES = """examples:
  biv train data.csv --target y --target-std y_err               writes the folder biv-model
  biv train data/ --target y --target-var v --out model          reads all tables of a folder
  biv train data.csv --target y --target-interval low high --level 0.9
  biv train data.csv --target y                                  trains without error bars
  biv train data.csv --target y --target-std s --ignore id name --category postcode

Features may be numbers, true/false, dates (2024-12-31, with or without a time), text (categories)
and sequences of letters. Missing cells are empty, NA, null, NaN, - or ?. Rows without a label are
left out. Text that looks like an identifier is left out too, unless --keep names it. A column that
repeats the label is an error.

If training is interrupted (Ctrl-C, or a kill), run the same command again to resume it.

Tables larger than memory must be Parquet files. With --stream, training reads them batch by batch.
torchrun starts several such processes, on one or several machines. It restarts them if one is
killed, and training resumes from the last checkpoint:
  torchrun --nproc-per-node 4 --max-restarts 3 -m biv train table/ --target y --target-var v

The model folder also contains an HTML report, report.html. Run `biv inspect` before training to
check the error bars, and `biv compare` to see whether weighting by them helps.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=DESCRIPTION,
        examples=EXAMPLES,
        page="command",
        interrupted="run the same command again to resume",
    )
    _table_options.add_files(parser)
    _table_options.add_columns(parser, error_bars=False)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--loss",
        choices=registry.names(),
        default="biv",
        help="loss function, which decides how labels are weighted (default: biv)",
    )
    model.add_argument(
        "--epsilon",
        default="auto",
        metavar="EPSILON",
        help=f"with --loss {registry.names_with_setting('epsilon')}: ε, as a number in units of "
        "the label variance, or auto to choose it from the data (default: auto)",
    )
    model.add_argument(
        "--threshold",
        type=float,
        metavar="VARIANCE",
        help=f"with --loss {registry.names_with_setting('threshold')}: drop labels whose variance "
        "is at least this (default: the mean variance)",
    )
    model.add_argument(
        "--members",
        type=int,
        metavar="N",
        help="number of networks of the ensemble (default: 16; always 1 with --stream)",
    )
    model.add_argument(
        "--max-epochs",
        type=int,
        default=100,
        metavar="N",
        help="maximum number of epochs (default: 100)",
    )
    model.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help="stop after N epochs that together improve the score by less than 1%% (default: 4, "
        "more for small tables)",
    )
    _table_options.add_unknown(model)
    model.add_argument(
        "--calibrate-variance",
        action="store_true",
        help="multiply all variances by the factor that residuals suggest",
    )
    model.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="number of threads; -1 uses all cores (default: 1)",
    )
    _add_stream(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("biv-model"),
        metavar="FOLDER",
        help="folder of the model (default: biv-model)",
    )
    parser.add_argument(
        "--comparison",
        type=Path,
        metavar="JSON",
        help="include this comparison, the output of `biv compare --json`, in the report",
    )
    _table_options.add_report(parser, "report.html in the model folder")
    _table_options.add_common(parser)


def _add_stream(parser: argparse.ArgumentParser) -> None:
    """Add the options for tables larger than memory."""
    stream = parser.add_argument_group("tables larger than memory (Parquet files)")
    stream.add_argument(
        "--stream",
        action="store_true",
        help="train while reading the files batch by batch; always on under torchrun",
    )
    stream.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help="number of rows per step, over all processes (default: 1024)",
    )
    stream.add_argument(
        "--learning-rate",
        type=float,
        metavar="RATE",
        help="learning rate of AdamW (default: depends on the number of features)",
    )
    stream.add_argument(
        "--shards",
        type=int,
        metavar="N",
        help="divide the row groups into N shards; a number of processes that divides N does not "
        "change the batches (default: 12, or the next multiple of the number of processes)",
    )
    stream.add_argument(
        "--checkpoint-seconds",
        type=float,
        metavar="SECONDS",
        help="time between two checkpoints (default: 60)",
    )


def call(options: argparse.Namespace) -> int:
    """Read the table, train the model, and write its folder."""
    if options.stream or launched_by_torchrun():
        return _call_streamed(options)
    for name in STREAMED:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} requires --stream or torchrun")
    settings = _settings(options)
    _table_options.require_libraries()
    from biv.workflows import train_folder
    from biv.workflows.training_folder import require_no_model

    require_no_model(options.out, force=options.force)
    page, comparison = _for_report(options)
    table = _table_options.read(options)
    if not options.json:
        print(f"{_table_options.describe(table)}.\n", flush=True)
    if table.variance is None:
        _table_options.note_no_error_bars(table.target, table.schema.names)
    _table_options.note_zeros(table)
    with _table_options.noted_warnings():
        folder = train_folder(
            options.out,
            table,
            settings,
            force=options.force,
            comparison=comparison,
            command=options.command,
        )
    return _show(options, folder, page)


def _for_report(options: argparse.Namespace) -> tuple[Path | None, ComparisonRecord | None]:
    """Return the file of the report, if there is to be one, and the comparison to include."""
    from biv.workflows.comparison_record import ComparisonRecord
    from biv.workflows.training_folder import REPORT

    comparison = None
    if options.comparison is not None:
        comparison = ComparisonRecord.read(options.comparison, options.target)
    path = _table_options.report_path(options, options.out / REPORT, new_folder=options.out)
    return path, comparison


def _show(options: argparse.Namespace, folder: ModelFolder, page: Path | None) -> int:
    """Print the result, write the report, and return the exit code."""
    from biv._utils.typed_json import to_json
    from biv.report.training import text

    out = shlex.quote(str(options.out))

    def write(path: Path) -> None:
        from biv.report import model_page

        model_page.build_model_page(folder, out).write(path)

    report_command = f"biv report {out} --out {shlex.quote(str(page))}"
    report = _table_options.write_supplement(
        page,
        write,
        f"the model in {options.out} is complete, and `{report_command}` writes its report",
    )
    result = {"model": str(options.out), "report": None if report is None else str(report)}
    files = [str(options.out), *([] if report is None else [str(report)])]
    lines = [text(folder), "", "Written:", *files]
    _table_options.show(options, result | to_json(folder.about), "\n".join(lines))
    return 0 if report == page else 1


def _call_streamed(options: argparse.Namespace) -> int:
    """Train on a stream, in every process; the first process writes and prints."""
    from biv.training.ranks import OtherRankError, Ranks

    with Ranks.join() as ranks:
        try:
            ranks.run_on_all(lambda: _require_streamed(options))
            return _train_streamed(options, ranks)
        except OtherRankError:
            return 2  # the other process has printed the error


def _require_streamed(options: argparse.Namespace) -> None:
    """Check before any work that the options suit a stream."""
    _table_options.require_libraries()
    from biv._utils import validation

    if options.jobs != -1:
        validation.integer("--jobs", options.jobs, at_least=1)
    if options.members not in (None, 1):
        raise ValueError(f"--members must be 1 with --stream; got {options.members}")
    if options.calibrate_variance:
        raise ValueError(
            "--calibrate-variance is not available with --stream; run `biv inspect` on a sample"
        )
    if options.unknown_variance == "estimate":
        raise ValueError(
            "--unknown-variance estimate is not available with --stream; median is available"
        )
    for name in ("batch_size", "shards", "max_epochs", "patience"):
        if getattr(options, name) is not None:
            validation.integer(f"--{name.replace('_', '-')}", getattr(options, name), at_least=1)
    if options.learning_rate is not None:
        validation.real_number("--learning-rate", options.learning_rate, validation.POSITIVE)
    if options.checkpoint_seconds is not None:
        validation.real_number(
            "--checkpoint-seconds", options.checkpoint_seconds, validation.NON_NEGATIVE
        )
    _epsilon(options)


def _train_streamed(options: argparse.Namespace, ranks: Ranks) -> int:
    from biv.workflows.stream_plan import StreamSettings
    from biv.workflows.streamed import train_streamed

    def log(text: str) -> None:
        if not options.json:
            print(text, flush=True)

    page, comparison = ranks.run_on_first(lambda: _for_report(options))
    with _table_options.noted_warnings():
        folder = train_streamed(
            options.out,
            options.files,
            _table_options.target(options),
            StreamSettings(
                loss=options.loss,
                epsilon=_epsilon(options),
                threshold=options.threshold,
                max_epochs=options.max_epochs,
                patience=options.patience or StreamSettings.patience,
                batch_size=options.batch_size or StreamSettings.batch_size,
                learning_rate=options.learning_rate,
                unknown_variance=options.unknown_variance,
                shards=options.shards,
                seed=options.seed,
            ),
            ranks=ranks,
            features=options.features,
            ignore=options.ignore,
            keep=options.keep,
            categories=options.category,
            force=options.force,
            threads=(os.cpu_count() or 1) if options.jobs == -1 else options.jobs,
            checkpoint_seconds=60.0
            if options.checkpoint_seconds is None
            else options.checkpoint_seconds,
            log=log,
            comparison=comparison,
            command=options.command,
        )
    if folder is not None:
        if not folder.target.error_bars:
            _table_options.note_no_error_bars(folder.target, folder.schema.names)
        return _show(options, folder, page)
    return 0


def _epsilon(options: argparse.Namespace) -> Any:
    """Check ε and the other settings of the loss, and return ε."""
    from biv._utils import validation

    try:
        epsilon: Any = options.epsilon if options.epsilon == "auto" else float(options.epsilon)
    except ValueError:
        raise ValueError(
            f"--epsilon must be auto or a number; got {options.epsilon!r}{argument_hint('epsilon')}"
        ) from None
    allowed = registry.get(options.loss).user_settings
    for name in ("epsilon", "threshold"):
        if getattr(options, name) not in ("auto", None) and name not in allowed:
            losses = registry.names_with_setting(name)
            raise ValueError(f"--{name} requires --loss {losses}; got --loss {options.loss}")
    if options.threshold is not None:
        validation.real_number("--threshold", options.threshold, validation.POSITIVE)
    if epsilon != "auto":
        validation.real_number("--epsilon", epsilon, validation.NON_NEGATIVE)
    return epsilon


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Check the options, before the table is read, and return the settings of the estimator."""
    from biv._utils import validation

    epsilon = _epsilon(options)
    if options.jobs == 0:
        raise ValueError("--jobs must be at least 1, or -1 for all cores; got 0")
    members = 16 if options.members is None else options.members
    validation.integer("--members", members, at_least=2)
    folds = next(k for k in (8, 7, 6, 5, 4, 3, 2, members) if members % k == 0)
    return {
        "loss": options.loss,
        "epsilon": epsilon,
        "threshold": options.threshold,
        "members": members,
        "folds": folds,
        "max_epochs": validation.integer("--max-epochs", options.max_epochs, at_least=1),
        "patience": None
        if options.patience is None
        else validation.integer("--patience", options.patience, at_least=1),
        "unknown_variance": options.unknown_variance,
        "calibrate_variance": options.calibrate_variance,
        "n_jobs": options.jobs,
        "random_state": options.seed,
        "verbose": sys.stderr.isatty(),
    }
