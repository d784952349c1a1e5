"""The `biv` command: parse the arguments, call the command, return the exit code."""

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
    """A command: its module, imported only when the command is used, and its line of help."""

    module: str
    summary: str


COMMANDS = {
    "inspect": Command("biv.cli.inspect", "check the error bars of a table before training"),
    "compare": Command("biv.cli.compare", "cross-validate training methods and recommend one"),
    "train": Command("biv.cli.train", "train a model on a table with error bars"),
    "predict": Command(
        "biv.cli.predict", "add predictions and their standard deviations to a table"
    ),
    "report": Command(
        "biv.cli.report", "write an HTML report on a model, or on runs of the paper's experiments"
    ),
    "reproduce": Command(
        "biv.paper.commands.reproduce", "reproduce the table and the figures of the paper"
    ),
    "claims": Command(
        "biv.paper.commands.claims", "test the claims of the paper and print the verdicts"
    ),
    "docs": Command("biv.cli.docs", "list the pages of the documentation, or show one"),
}

EXAMPLES = """examples:
  biv inspect data.csv --target y --target-std y_err    check the error bars
  biv compare data.csv --target y --target-std y_err    find out whether weighting by them helps
  biv train data.csv --target y --target-std y_err      train a model into the folder biv-model
  biv predict biv-model new.csv                         write predictions.csv
  biv report biv-model                                  write report.html
  biv reproduce table1                                  reproduce the paper's table
  biv reproduce --list                                  list the figures, with training times
  biv claims                                            test the paper's claims
  biv COMMAND --help                                    show all options of a command

exit codes:
  0             success
  1             a run failed, or a file could not be written
  2             bad usage, bad data, or another process is writing the same output
  129, 130, 143 interrupted by SIGHUP, SIGINT (Ctrl-C) or SIGTERM

documentation:
  biv docs              list all pages
  biv docs command      tutorial of this command
  biv docs error-bars   find out which kind of error bars you have
  biv docs epsilon      what ε is and how it is chosen
  biv docs glossary     all terms and symbols
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; `biv --help` explains the codes."""
    if arguments is None:  # run as a command: streams without σ in their encoding get a ?
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
    except BrokenPipeError:  # `biv ... | head`: the reader closed the pipe
        _discard_output()
        return 141  # exit code of a process that SIGPIPE has ended
    except MemoryError:
        print("biv: not enough memory", file=sys.stderr)
        return 2
    except (ValueError, OSError, RuntimeError, ArithmeticError) as error:
        return _report_error(error, options)
    except KeyboardInterrupt as error:
        print(f"\nbiv: interrupted; {options.interrupted}", file=sys.stderr)
        return error.exit_code if isinstance(error, _signals.Interrupted) else 130


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of all commands; only the given command has its options.

    The modules of the other commands and PyTorch are not imported, so that help and errors about
    options appear without delay.
    """
    parser = Parser(
        prog="biv",
        description="Train regression models on labels that each have their own error bar.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"biv {metadata.version('biv')}")
    parser.set_defaults(help_page="command")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    chosen = next((argument for argument in given if not argument.startswith("-")), None)
    for name, command in COMMANDS.items():
        command_parser = commands.add_parser(
            name, help=command.summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == chosen:
            import_module(command.module).configure(command_parser)
    return parser


def _report_error(error: Exception, options: argparse.Namespace) -> int:
    """Print an error and return the exit code."""
    if isinstance(error, OSError) and error.filename is None and error.errno in NO_SPACE:
        error = WriteError(error.errno, error.strerror, "the output")
        _discard_output()  # otherwise Python tries to write it again at exit
    from biv.training.early_stopping import DivergedError

    message = render_text(error, OPTIONS)
    needs_page = isinstance(error, (ValueError, FileNotFoundError)) and "biv docs" not in message
    page = "command" if isinstance(error, FileNotFoundError) else options.help_page
    print(f"biv: {message}{pages.page_hint(page) if needs_page else ''}", file=sys.stderr)
    return 1 if isinstance(error, (DivergedError, RuntimeError, WriteError)) else 2


def _discard_output() -> None:
    """Redirect standard output to nowhere, because its reader has gone or its disk is full."""
    with contextlib.suppress(
        OSError, AttributeError
    ):  # standard output may be an object without a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
