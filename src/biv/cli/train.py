"""`biv train`: a table with error bars becomes a model in a folder."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Any

from biv import _checks
from biv.cli import experiments, owndata
from biv.cli.parsing import add_command

LOSSES, UNKNOWN = ("biv", "l2", "iv", "cutoff"), ("raise", "median", "estimate")

EXAMPLES = """examples:
  biv train data.csv --target y --target-std y_err               writes the folder biv-model
  biv train data/ --target y --target-var v --out model          all tables of a folder
  biv train data.csv --target y --target-interval low high --level 0.9
  biv train data.csv --target y                                  no error bars: all labels alike
  biv train data.csv --target y --target-std s --ignore id name --category postcode

Columns of numbers, true/false, dates (2024-12-31, with or without a time), text (categories), and
sequences of letters are learned from; missing cells are empty, NA, null, NaN, - or ?. A row without
a label is left out. Interrupted (Ctrl-C, or a kill), the same command goes on where it was.

`biv predict` uses the model, `biv inspect` looks at the error bars first, and `biv compare` says
whether they are worth it.
"""


def add_to(commands: Any) -> None:
    """Add this command to the parser's."""
    parser = add_command(
        commands,
        "train",
        call,
        brief="a model from a table with error bars",
        description=__doc__,
        examples=EXAMPLES,
        interrupted="the same command goes on where it was",
    )
    owndata.add_files(parser)
    owndata.add_columns(parser, error_bars=False)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--loss", choices=LOSSES, default="biv", help="how labels are weighed (default: biv)"
    )
    model.add_argument(
        "--epsilon",
        default="auto",
        help="of biv: auto, or a number in units of the label variance (default: auto)",
    )
    model.add_argument(
        "--threshold", type=float, help="of cutoff, a variance (default: the mean of all)"
    )
    model.add_argument("--members", type=int, default=16, help="networks (default: 16)")
    model.add_argument("--max-epochs", type=int, default=100, help="at most (default: 100)")
    model.add_argument(
        "--unknown-variance",
        choices=UNKNOWN,
        default="raise",
        help="where an error bar is missing: an error, the median, or an estimate (default: raise)",
    )
    model.add_argument(
        "--calibrate-variance",
        action="store_true",
        help="multiply all variances by the factor that they seem to be off by",
    )
    model.add_argument("--jobs", type=int, default=1, help="threads; -1 for all (default: 1)")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("biv-model"), help="folder (default: biv-model)"
    )
    owndata.add_usual(parser)


def call(options: argparse.Namespace) -> int:
    """Read, fit, write."""
    settings = _settings(options)
    owndata.require_libraries()
    from biv.owndata import ModelFolder
    from biv.owndata.modelfolder import require_free

    require_free(options.out, force=options.force)
    table = owndata.read(options)
    if not options.json:
        print(f"{owndata.described(table)}.", flush=True)
    if table.variance is None:
        owndata.note_no_error_bars(table)
    with owndata.noted_warnings():
        folder = ModelFolder.train(options.out, table, settings, force=options.force)
    about = folder.about
    owndata.show(options, {"model": str(options.out), **about}, f"{_text(about)}\n{options.out}")
    return 0


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Of the estimator; what argparse cannot judge is judged here, before a long reading."""
    try:
        epsilon: Any = options.epsilon if options.epsilon == "auto" else float(options.epsilon)
    except ValueError:
        raise ValueError(f"--epsilon must be auto or a number; found {options.epsilon!r}") from None
    for name, loss in (("epsilon", "biv"), ("threshold", "cutoff")):
        if getattr(options, name) not in ("auto", None) and options.loss != loss:
            raise ValueError(f"--{name} is of --loss {loss}; found it with {options.loss}")
    if epsilon != "auto":
        _checks.real_number("--epsilon", epsilon, _checks.NON_NEGATIVE)
    members = _checks.integer("--members", options.members, at_least=2)
    folds = next(k for k in (8, 7, 6, 5, 4, 3, 2, members) if members % k == 0)
    return {
        "loss": options.loss,
        "epsilon": epsilon,
        "threshold": options.threshold,
        "members": members,
        "folds": folds,
        "max_epochs": _checks.integer("--max-epochs", options.max_epochs, at_least=1),
        "unknown_variance": options.unknown_variance,
        "calibrate_variance": options.calibrate_variance,
        "n_jobs": options.jobs,
        "random_state": options.seed,
        "verbose": sys.stderr.isatty(),
    }


def _text(about: Any) -> str:
    """What came out, in a few lines."""
    from biv.owndata.relation import RELATED
    from biv.report.inspection import WIDTH, factor_text

    result = about["result"]
    noisy = result["variance_factor_interval"] is not None
    labels = "the true labels" if noisy else "the labels     "
    lines = [
        f"Epoch {result['epoch']} of {result['epochs']} was the best. On rows that a network has "
        "not seen:",
        f"  R² to {labels}       {result['r2']:.3f} ± {result['r2_stderr']:.3f}",
        f"  mean squared error to them  {result['mse']:.4g} ± {result['mse_stderr']:.2g}; the "
        f"label variance is {result['label_variance']:.4g}",
    ]
    if result["epsilon"] is not None:
        lines.append(
            f"  ε                           {result['epsilon']:.4g}, "
            f"{result['relative_epsilon']:.3g} of the label variance"
        )
    if result["variance_factor_interval"] is not None:
        told = factor_text(result["variance_factor"], result["variance_factor_interval"])
        if about["settings"]["calibrate_variance"]:
            told = f"they were multiplied by {result['variance_factor']:.2f}"
        lines += [
            f"  effective sample size       {result['effective_sample_size']:,.0f} of "
            f"{about['rows']:,} labels",
            f"  are the error bars right?   {told}",
        ]
    if result["mse"] < -3 * result["mse_stderr"]:
        lines.append(
            "An error below 0 cannot be: the error bars are larger than the labels' noise. Is the "
            "column σ and not σ² (--target-std), and in the units of the label?"
        )
    if abs(result["rank_correlation_with_label"]) >= RELATED:
        text = (
            "Error bars go with the label (rank correlation "
            f"{result['rank_correlation_with_label']:+.2f}), so that these scores tell of one end "
            "of the labels more than of the other. With all labels alike, the squared error is "
            f"{result['mse_all_labels_alike']:.4g} ± {result['mse_all_labels_alike_stderr']:.2g}, "
            "if the large error bars are right. Were error bars computed from the noisy labels, as "
            "√n of a count n is, then weighting pulls predictions to one side: biv compare tells "
            "whether to use them."
        )
        lines.append(textwrap.fill(text, WIDTH))
    lines.append(
        f"{experiments.in_words(about['seconds'])}, "
        f"{owndata.in_bytes(about['peak_memory_bytes'])} of memory at the most."
    )
    return "\n".join(lines)
