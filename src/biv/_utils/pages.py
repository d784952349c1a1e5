"""Pages of the documentation, which `biv docs PAGE` shows and errors and `--help` name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE_OF = {
    "variance": "error-bars",
    "variances": "error-bars",
    "y_var": "error-bars",
    "y_std": "error-bars",
    "half_width": "error-bars",
    "level": "error-bars",
    "mask": "loss",
    "sample_weight": "loss",
    "base": "loss",
    "threshold": "loss",
    "weights": "epsilon",
    "epsilon": "epsilon",
    "--epsilon": "epsilon",
    "process_group": "distributed",
}
"""Page that explains an argument, for arguments whose choice needs an explanation."""


def argument_hint(argument: str) -> str:
    """Return the end of an error about an argument, which names its page; "" if it has none.

    Examples
    --------
    >>> "variance must be non-negative; got -1" + argument_hint("variance")
    'variance must be non-negative; got -1 (see: biv docs error-bars)'
    >>> argument_hint("dim")
    ''
    """
    page = PAGE_OF.get(argument)
    return "" if page is None else page_hint(page)


def page_hint(page: str) -> str:
    """Return the end of a message that a page explains."""
    return f" (see: biv docs {page})"


@contextmanager
def errors_point_to(page: str) -> Iterator[None]:
    """Append a page to errors raised inside, unless they name a page already.

    It works as a context manager and as a decorator. Do not decorate functions that call users'
    code, because errors of that code would name the page too.

    Examples
    --------
    >>> @errors_point_to("images")
    ... def read(size):
    ...     raise ValueError(f"size must be positive; got {size}")
    >>> read(-1)
    Traceback (most recent call last):
    ValueError: size must be positive; got -1 (see: biv docs images)
    """
    try:
        yield
    except (ValueError, TypeError, FileNotFoundError) as error:
        message = error.args[0] if len(error.args) == 1 else None
        if isinstance(message, str) and "biv docs" not in message:
            error.args = (message + page_hint(page),)
        raise


def folder() -> Path:
    """Return the folder of the pages, in the installed package or in a clone."""
    package = Path(__file__).parent.parent
    for path in (package / "docs", package.parent.parent / "docs"):
        if (path / "index.md").is_file():
            return path
    raise FileNotFoundError("the pages are not installed with this package")


def titles() -> dict[str, str]:
    """Return the title of each page by its name, such as "epsilon" or "paper/fig03".

    The pages are in the order in which the index links to them. The reference is left out, because
    `help(biv)` shows it, and so are pages that only the site assembles.
    """
    root = folder()
    index = (root / "index.md").read_text(encoding="utf-8")
    paths = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.md"))}
    pages = {}
    for name in sorted(paths, key=lambda name: index.find(f"]({name})")):
        text = paths[name].read_text(encoding="utf-8")
        if not name.startswith("api/") and "```{include}" not in text:
            short = name.removesuffix(".md").removesuffix("/index")
            pages[short] = text.partition("\n")[0].removeprefix("# ")
    return pages


def read(name: str) -> str:
    """Return the text of a page, without the directives of the site.

    Raises
    ------
    ValueError
        If there is no page of that name.
    """
    known = titles()
    if name not in known:
        same_end = [page for page in known if page.endswith(f"/{name}")]
        similar = same_end or difflib.get_close_matches(name, known, n=3)
        hint = f": {' or '.join(similar)}?" if similar else "; `biv docs` lists the pages"
        raise ValueError(f"there is no page {name!r}{hint}")
    file, index = folder() / f"{name}.md", folder() / name / "index.md"
    text = (file if file.exists() else index).read_text(encoding="utf-8")
    return re.sub(r"\n```\{toctree\}\n.*?\n```\n", "", text, flags=re.DOTALL)
