"""How every command presents itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add_command(
    commands: Any,
    name: str,
    call: Callable[[argparse.Namespace], int],
    *,
    brief: str,
    description: str | None,
    examples: str,
    interrupted: str = "nothing was written",
) -> argparse.ArgumentParser:
    """A parser for one command.

    Args:
        commands: The subparsers to add it to.
        name: Of the command.
        call: What it does; returns the exit code.
        brief: For the list of commands.
        description: For its own help.
        examples: At the end of that.
        interrupted: What is said after Ctrl-C.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=brief,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(call=call, interrupted=interrupted)
    return parser
