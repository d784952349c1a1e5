"""The pages of the documentation that errors and `--help` name: `biv docs PAGE` shows them."""

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
"""Where an argument is explained, of those that people have to think about."""


def argument_hint(argument: str) -> str:
    """What to append to an error about an argument; nothing if it has no page.

    Example:
        >>> "variance must be non-negative; got -1" + argument_hint("variance")
        'variance must be non-negative; got -1 (see: biv docs error-bars)'
        >>> argument_hint("dim")
        ''
    """
    page = PAGE_OF.get(argument)
    return "" if page is None else page_hint(page)


def page_hint(page: str) -> str:
    """What to append to a message that this page helps with."""
    return f" (see: biv docs {page})"


@contextmanager
def errors_point_to(page: str) -> Iterator[None]:
    """Errors of values and files that leave here name the page, unless they name one already.

    It decorates functions too; not those that call what users wrote, whose errors are their own.

    Example:
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
        said = error.args[0] if len(error.args) == 1 else None
        if isinstance(said, str) and "biv docs" not in said:
            error.args = (said + page_hint(page),)
        raise


def folder() -> Path:
    """Where the pages are: in an installed package beside its modules, in a clone in docs."""
    here = Path(__file__).parent.parent
    for path in (here / "docs", here.parent.parent / "docs"):
        if (path / "index.md").is_file():
            return path
    raise FileNotFoundError("the pages are not installed with this package")


def titles() -> dict[str, str]:
    """The pages by name, such as "epsilon" or "paper/fig03", and the title of each.

    In the order in which the first page names them. The reference is not among them (`help(biv)`
    has it), nor what only the site puts together.
    """
    root = folder()
    first = (root / "index.md").read_text(encoding="utf-8")
    paths = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.md"))}
    found = {}
    for name in sorted(paths, key=lambda name: first.find(f"]({name})")):
        text = paths[name].read_text(encoding="utf-8")
        if not name.startswith("api/") and "```{include}" not in text:
            short = name.removesuffix(".md").removesuffix("/index")
            found[short] = text.partition("\n")[0].removeprefix("# ")
    return found


def read(name: str) -> str:
    """The text of a page, without what only the site makes something of.

    Raises:
        ValueError: There is none of that name.
    """
    known = titles()
    if name not in known:
        meant = [page for page in known if page.endswith(f"/{name}")]
        near = meant or difflib.get_close_matches(name, known, n=3)
        hint = f": {' or '.join(near)}?" if near else "; without a name, `biv docs` lists them"
        raise ValueError(f"there is no page {name!r}{hint}")
    own, of_folder = folder() / f"{name}.md", folder() / name / "index.md"
    text = (own if own.exists() else of_folder).read_text(encoding="utf-8")
    return re.sub(r"\n```\{toctree\}\n.*?\n```\n", "", text, flags=re.DOTALL)
