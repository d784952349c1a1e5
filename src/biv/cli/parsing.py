"""How every command presents itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from biv import _pages


class Parser(argparse.ArgumentParser):
    """One whose errors name the page that helps."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the options, and end."""
        page = self.get_default("helps")
        super().error(message if page is None else message + _pages.named(page))


def add_command(
    commands: Any,
    name: str,
    call: Callable[[argparse.Namespace], int],
    *,
    brief: str,
    description: str | None,
    examples: str,
    page: str,
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
        page: Of the documentation, for those whom that does not help.
        interrupted: What is said after Ctrl-C.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=brief,
        description=description,
        epilog=f"{examples}\nmore: biv docs {page}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(call=call, interrupted=interrupted, helps=page)
    return parser
