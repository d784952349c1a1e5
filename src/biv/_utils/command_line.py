"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from biv._utils import pages


class Parser(argparse.ArgumentParser):
    """One whose errors name the page that helps."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the options, and end."""
        page = self.get_default("helps")
        super().error(message if page is None else message + pages.page_hint(page))


def describe_command(
    parser: argparse.ArgumentParser,
    call: Callable[[argparse.Namespace], int],
    *,
    description: str | None,
    examples: str,
    page: str,
    interrupted: str = "nothing was written",
) -> None:
    """Set what the parser of a command calls and shows.

    Args:
        parser: Parser of the command.
        call: Runs the command and returns its exit code.
        description: Description in its help.
        examples: Examples at the end of its help.
        page: Page of the documentation that its help and its errors name.
        interrupted: Message after Ctrl-C.
    """
    parser.description = description
    parser.epilog = f"{examples}\nmore: biv docs {page}\n"
    parser.set_defaults(call=call, interrupted=interrupted, helps=page)
