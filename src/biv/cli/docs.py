"""`biv docs`: the documentation, in the terminal."""

from __future__ import annotations

import argparse
import pydoc
import sys

from biv._utils import pages
from biv._utils.command_line import describe_command

EXAMPLES = """examples:
  biv docs                  what pages there are
  biv docs error-bars       have I the right error bars?
  biv docs epsilon          what is ε?
  biv docs paper/fig03      an experiment of the paper: what was done, and what came out

The same pages, with pictures, are in the folder docs of a clone; `make docs` makes a site of them.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=__doc__,
        examples=EXAMPLES,
        page="index",
    )
    parser.add_argument("page", nargs="?", metavar="PAGE", help="such as error-bars, or none")


def call(options: argparse.Namespace) -> int:
    """Show a page, or what there is."""
    text = listing() if options.page is None else pages.read(options.page)
    if options.page is not None and sys.stdin.isatty() and sys.stdout.isatty():
        pydoc.pager(text)
    else:
        print(text.rstrip("\n"))
    return 0


def listing() -> str:
    """Every page and its title; the paper's many on one line."""
    titles = pages.titles()
    shown = {name: title for name, title in titles.items() if "/" not in name}
    width = max(map(len, shown))
    lines = [f"  biv docs {name:{width}}  {title}" for name, title in shown.items()]
    of_paper = [name for name in titles if name.startswith("paper/")]
    lines.append(f"\nand of the paper's experiments: {', '.join(of_paper)}")
    return "\n".join(lines)
