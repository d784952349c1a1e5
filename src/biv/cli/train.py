"""`biv train`: a table with error bars becomes a model in a folder."""

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

STREAMED = ("batch_size", "learning_rate", "shards", "checkpoint_seconds")  # options of a stream

EXAMPLES = """examples:
  biv train data.csv --target y --target-std y_err               writes the folder biv-model
  biv train data/ --target y --target-var v --out model          all tables of a folder
  biv train data.csv --target y --target-interval low high --level 0.9
  biv train data.csv --target y                                  no error bars: all labels alike
  biv train data.csv --target y --target-std s --ignore id name --category postcode

Columns of numbers, true/false, dates (2024-12-31, with or without a time), text (categories), and
sequences of letters are learned from; missing cells are empty, NA, null, NaN, - or ?. A row without
a label is left out, and so is text of which at least 95% of the filled cells are distinct, like
identifiers: --keep learns from it. A column that repeats the label is an error.
Interrupted (Ctrl-C, or a kill), the same command goes on where it was.

A folder of Parquet files that is larger than memory is learned from as it is read, by one process
(--stream) or by several: torchrun starts them, here or on many machines, and restarts them when one
is killed; they go on from the last checkpoint.
  torchrun --nproc-per-node 4 --max-restarts 3 -m biv train table/ --target y --target-var v

The folder has a page about the model too, report.html, to be opened in a browser.

`biv predict` uses the model, `biv inspect` looks at the error bars first, and `biv compare` says
whether they are worth it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=__doc__,
        examples=EXAMPLES,
        page="command",
        interrupted="the same command goes on where it was",
    )
    _table_options.add_files(parser)
    _table_options.add_columns(parser, error_bars=False)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--loss",
        choices=registry.names(),
        default="biv",
        help="how labels are weighed (default: biv)",
    )
    model.add_argument(
        "--epsilon",
        default="auto",
        help=f"of {registry.tuning('epsilon')}: auto, or a number in units of the label variance "
        "(default: auto)",
    )
    model.add_argument(
        "--threshold",
        type=float,
        help=f"of {registry.tuning('threshold')}, a variance (default: the mean of all)",
    )
    model.add_argument("--members", type=int, help="networks (default: 16; of a stream, 1)")
    model.add_argument("--max-epochs", type=int, default=100, help="at most (default: 100)")
    model.add_argument(
        "--patience",
        type=int,
        help="epochs that gain less than 1%% in all before it stops (default: 4, of small tables "
        "more)",
    )
    _table_options.add_unknown(model)
    model.add_argument(
        "--calibrate-variance",
        action="store_true",
        help="multiply all variances by the factor that they seem to be off by",
    )
    model.add_argument("--jobs", type=int, default=1, help="threads; -1 for all (default: 1)")
    _add_stream(parser)
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("biv-model"), help="folder (default: biv-model)"
    )
    parser.add_argument(
        "--comparison",
        type=Path,
        metavar="JSON",
        help="what `biv compare --json` printed, for the report",
    )
    _table_options.add_report(parser, "report.html in the folder")
    _table_options.add_usual(parser)


def _add_stream(parser: argparse.ArgumentParser) -> None:
    """Add the options of a table that is larger than memory."""
    stream = parser.add_argument_group("a table that is larger than memory, in Parquet files")
    stream.add_argument(
        "--stream",
        action="store_true",
        help="learn from it as it is read; always so under torchrun",
    )
    stream.add_argument(
        "--batch-size", type=int, help="rows a step, of all processes together (default: 1024)"
    )
    stream.add_argument("--learning-rate", type=float, help="of AdamW (default: by the columns)")
    stream.add_argument(
        "--shards",
        type=int,
        help="that the row groups are dealt to: with as many, any number of processes that divides "
        "them has the same batches (default: 12, or the next multiple of the processes)",
    )
    stream.add_argument(
        "--checkpoint-seconds", type=float, help="between two checkpoints (default: 60)"
    )


def call(options: argparse.Namespace) -> int:
    """Read, fit, write."""
    if options.stream or launched_by_torchrun():
        return _call_streamed(options)
    for name in STREAMED:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is for --stream, or for torchrun")
    settings = _settings(options)
    _table_options.require_libraries()
    from biv.workflows import train_folder
    from biv.workflows.training_folder import require_no_model

    require_no_model(options.out, force=options.force)
    page, comparison = _for_report(options)
    table = _table_options.read(options)
    if not options.json:
        print(f"{_table_options.described(table)}.", flush=True)
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
    """Where the report goes, if to anywhere, and the comparison that it is to have."""
    from biv.workflows.comparison_record import ComparisonRecord
    from biv.workflows.training_folder import REPORT

    comparison = None
    if options.comparison is not None:
        comparison = ComparisonRecord.read(options.comparison, options.target)
    return _table_options.report_path(options, options.out / REPORT, made=options.out), comparison


def _show(options: argparse.Namespace, folder: ModelFolder, page: Path | None) -> int:
    """What came out, as text or JSON, and as a page; the exit code."""
    from biv._utils.typed_json import to_json
    from biv.report.training import text

    out = shlex.quote(str(options.out))

    def write(path: Path) -> None:
        from biv.report import model_page

        model_page.build_model_page(folder, out).write(path)

    again = f"biv report {out} --out {shlex.quote(str(page))}"
    report = _table_options.written(
        page, write, f"the model in {options.out} is complete, and `{again}` writes its report"
    )
    printed = {"model": str(options.out), "report": None if report is None else str(report)}
    lines = [text(folder), str(options.out), *([] if report is None else [str(report)])]
    _table_options.show(options, printed | to_json(folder.about), "\n".join(lines))
    return 0 if report == page else 1


def _call_streamed(options: argparse.Namespace) -> int:
    """Of every process that takes part: read, fit; the first writes and speaks."""
    from biv.training.ranks import OtherRankError, Ranks

    with Ranks.join() as ranks:
        try:
            ranks.run_on_all(lambda: _require_streamed(options))
            return _train_streamed(options, ranks)
        except OtherRankError:
            return 2  # it has been said


def _require_streamed(options: argparse.Namespace) -> None:
    _table_options.require_libraries()
    from biv._utils import validation

    if options.jobs != -1:
        validation.integer("--jobs", options.jobs, at_least=1)
    if options.members not in (None, 1):
        raise ValueError(f"--members must be 1 of a stream; got {options.members}")
    if options.calibrate_variance:
        raise ValueError("--calibrate-variance is not for a stream: `biv inspect` a sample of it")
    if options.unknown_variance == "estimate":
        raise ValueError("--unknown-variance estimate is not for a stream; median is")
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

    def say(text: str) -> None:
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
            say=say,
            comparison=comparison,
            command=options.command,
        )
    if folder is not None:
        if not folder.target.error_bars:
            _table_options.note_no_error_bars(folder.target, folder.schema.names)
        return _show(options, folder, page)
    return 0


def _epsilon(options: argparse.Namespace) -> Any:
    """What argparse cannot judge of ε, and of other settings of a loss."""
    from biv._utils import validation

    try:
        epsilon: Any = options.epsilon if options.epsilon == "auto" else float(options.epsilon)
    except ValueError:
        raise ValueError(
            f"--epsilon must be auto or a number; got {options.epsilon!r}{argument_hint('epsilon')}"
        ) from None
    tuned = registry.get(options.loss).tuned
    for name in ("epsilon", "threshold"):
        if getattr(options, name) not in ("auto", None) and name not in tuned:
            losses = registry.tuning(name)
            raise ValueError(f"--{name} is of --loss {losses}; got it with {options.loss}")
    if options.threshold is not None:
        validation.real_number("--threshold", options.threshold, validation.POSITIVE)
    if epsilon != "auto":
        validation.real_number("--epsilon", epsilon, validation.NON_NEGATIVE)
    return epsilon


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Of the estimator; what argparse cannot judge is judged here, before a long reading."""
    from biv._utils import validation

    epsilon = _epsilon(options)
    if options.jobs == 0:
        raise ValueError("--jobs must be 1 or more, or -1 for all cores; got 0")
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
