"""The parts that the parsers of all commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from biv._utils import pages


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors name a page of the documentation."""

    def error(self, message: str) -> NoReturn:
        """Print the error with its page, and exit."""
        page = self.get_default("help_page")
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
    """Set the function that the parser of a command calls, and its help.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command.
    call : callable
        Runs the command and returns its exit code.
    description : str or None
        Description in its help.
    examples : str
        Examples at the end of its help.
    page : str
        Page of the documentation that its help and its errors name.
    interrupted : str, default="nothing was written"
        Message after Ctrl-C.
    """
    parser.description = description
    parser.epilog = f"{examples}\nmore: biv docs {page}\nterms: biv docs glossary\n"
    parser.set_defaults(call=call, interrupted=interrupted, help_page=page)
