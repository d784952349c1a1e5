"""The `biv` command: parse, call, exit code."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import NamedTuple

from biv._utils import pages
from biv._utils.atomic_files import NO_SPACE, WriteError
from biv._utils.command_line import Parser
from biv._utils.wording import OPTIONS, render_text
from biv.cli import _signals


class Command(NamedTuple):
    """A command: its module, which is imported when the command is chosen, and a line of help."""

    module: str
    brief: str


COMMANDS = {
    "inspect": Command(
        "biv.cli.inspect", "the error bars of a table, before anything is trained on them"
    ),
    "compare": Command(
        "biv.cli.compare",
        "whether error bars are worth it: methods by cross-validation, and a recommendation",
    ),
    "train": Command("biv.cli.train", "a model from a table with error bars"),
    "predict": Command(
        "biv.cli.predict", "predictions and their standard deviations, added to a table"
    ),
    "report": Command(
        "biv.cli.report", "one HTML file to look at: of a model, or of the paper's runs"
    ),
    "reproduce": Command("biv.paper.commands.reproduce", "the paper's table and figures"),
    "claims": Command(
        "biv.paper.commands.claims",
        "the paper's claims, each with a verdict, its effect, interval and seeds",
    ),
    "docs": Command("biv.cli.docs", "the documentation: which page helps with what"),
}

EXAMPLES = """examples:
  biv inspect data.csv --target y --target-std y_err    what the error bars are worth
  biv compare data.csv --target y --target-std y_err    whether to use them, and with what
  biv train data.csv --target y --target-std y_err      a model, in the folder biv-model
  biv predict biv-model new.csv                         predictions.csv
  biv report biv-model                                  a page about it, report.html
  biv reproduce table1                                  the paper's table, ours beside the paper's
  biv reproduce --list                                  what there is, and its time here
  biv claims                                            the paper's claims, put to the test
  biv train --help                                      more, of every command
  biv docs                                              the pages that explain, by name

exit codes: 0 all is done; 1 a run failed, or a file could not be written; 2 bad usage or bad data,
or another process writes the same; 129, 130, 143 interrupted by SIGHUP, SIGINT (Ctrl-C), SIGTERM

new here: biv docs command     which error bars: biv docs error-bars     what is ε: biv docs epsilon
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; the help of the command tells what it means."""
    if arguments is None:  # run as a command: where a terminal or a pipe knows no σ, a ? will do
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
    given = sys.argv[1:] if arguments is None else [str(argument) for argument in arguments]
    options = _parser(given).parse_args(given)
    options.command = shlex.join(["biv", *given])
    try:
        with _signals.raise_on_signal():
            code = int(options.call(options))
            sys.stdout.flush()
            return code
    except BrokenPipeError:  # `biv ... | head`: whoever read has seen enough
        _discard_output()
        return 141  # as a shell says it
    except MemoryError:
        print("biv: there is not enough memory for this", file=sys.stderr)
        return 2
    except (ValueError, OSError, RuntimeError, ArithmeticError) as error:
        return _failed(error, options)
    except KeyboardInterrupt as error:
        print(f"\nbiv: interrupted; {options.interrupted}", file=sys.stderr)
        return error.exit_code if isinstance(error, _signals.Interrupted) else 130


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with all commands, of which the one that was given has its options.

    The modules of the others are not imported, nor is PyTorch, so that help and errors about
    options are there at once.
    """
    parser = Parser(
        prog="biv",
        description="Regression when every training label comes with its own error bar.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"biv {metadata.version('biv')}")
    parser.set_defaults(help_page="command")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    chosen = next((argument for argument in given if not argument.startswith("-")), None)
    for name, command in COMMANDS.items():
        of_command = commands.add_parser(
            name, help=command.brief, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == chosen:
            import_module(command.module).configure(of_command)
    return parser


def _failed(error: Exception, options: argparse.Namespace) -> int:
    """Say what went wrong; return the exit code."""
    if isinstance(error, OSError) and error.filename is None and error.errno in NO_SPACE:
        error = WriteError(error.errno, error.strerror, "the output")
        _discard_output()  # or the end of the process tries once more
    from biv.training.early_stopping import DivergedError

    said = render_text(error, OPTIONS)
    helps = isinstance(error, (ValueError, FileNotFoundError)) and "biv docs" not in said
    about = "command" if isinstance(error, FileNotFoundError) else options.help_page
    print(f"biv: {said}{pages.page_hint(about) if helps else ''}", file=sys.stderr)
    return 1 if isinstance(error, (DivergedError, RuntimeError, WriteError)) else 2


def _discard_output() -> None:
    """Write nothing more to standard output, which nobody reads or which is full."""
    with contextlib.suppress(OSError, AttributeError):  # it may have been replaced by an object
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
