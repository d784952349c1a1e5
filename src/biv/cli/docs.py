"""`biv docs`: the documentation in the terminal."""

from __future__ import annotations

import argparse
import pydoc
import sys

from biv._utils import pages
from biv._utils.command_line import describe_command

DESCRIPTION = "List the pages of the documentation, or show one."

EXAMPLES = """examples:
  biv docs                  list all pages
  biv docs glossary         all terms and symbols
  biv docs error-bars       find out which kind of error bars you have
  biv docs epsilon          what ε is and how it is chosen
  biv docs paper/fig03      an experiment of the paper and its results

The same pages, with pictures, are in the folder docs of a clone. `make docs` builds a website.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=DESCRIPTION,
        examples=EXAMPLES,
        page="index",
    )
    parser.add_argument(
        "page",
        nargs="?",
        metavar="PAGE",
        help="name of a page, such as error-bars (default: list all pages)",
    )


def call(options: argparse.Namespace) -> int:
    """Show a page, or list all pages."""
    text = listing() if options.page is None else pages.read(options.page)
    if options.page is not None and sys.stdin.isatty() and sys.stdout.isatty():
        pydoc.pager(text)
    else:
        print(text.rstrip("\n"))
    return 0


def listing() -> str:
    """Return the list of all pages with their titles."""
    titles = pages.titles()
    shown = {name: title for name, title in titles.items() if "/" not in name}
    width = max(map(len, shown))
    lines = [f"  biv docs {name:{width}}  {title}" for name, title in shown.items()]
    paper_pages = [name for name in titles if name.startswith("paper/")]
    lines.append(f"\nPages on the paper's experiments: {', '.join(paper_pages)}")
    return "\n".join(lines)
