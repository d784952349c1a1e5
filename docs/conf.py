"""Configuration of the site (`make docs`): Markdown pages, and a reference from the docstrings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

import biv

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment
    from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

project = "biv"
author = "The biv authors"
copyright = "the biv authors"  # noqa: A001
release = version = biv.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # included files have a first heading of their own

# Single backticks in docstrings mark code, as they do in Markdown.
default_role = "code"
napoleon_google_docstring = napoleon_numpy_docstring = True
napoleon_use_param = napoleon_use_rtype = False  # types are prose: "array-like of shape (N,)"
napoleon_custom_sections = [("Identities", "returns_style"), "Reference"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": False}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90

# A role without a target is an error. Names of other projects are exempt, because their targets
# would have to be downloaded. Types that are not roles are exempt too (print_unlinked_type).
nitpicky = True
nitpick_ignore_regex = [
    (r"py:class", r"(abc|nn|np|numpy|sklearn|torch|typing)\..*"),
    (r"py:class", r"DivergedError"),  # a private subclass of ValueError
]

html_theme = "furo"
html_title = "biv"
html_static_path = ["_static"]
html_css_files = ["biv.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
html_math_renderer = "mathml"


BARE_FRACTION = re.compile(r"\\[dt]?frac(?!\s*\{)")
# The converter sets the index of a letter with an accent below the letter, as it does for a sum.
INDEX_BELOW = re.compile(
    r"<munderover>\s*(<mi>\w</mi>)\s*(<mi>\w</mi>|<mrow>(?:(?!</?mrow>).)*</mrow>)\s*"
    r"(<mo[^>]*>[~ˉ]</mo>)\s*</munderover>",
    re.DOTALL,
)


def mathml(node: nodes.Element, *, block: bool) -> str:
    """Return a formula as MathML; warn if it is invalid, which is an error of `make docs`."""
    try:
        if BARE_FRACTION.search(node.astext()):
            raise MathError("A fraction needs braces, as in \\frac{1}{2}")
        converted = latex2mathml.tex2mathml(node.astext(), as_block=block)
    except MathError as error:
        logger.warning("%s in %s", error, node.astext(), location=node)
        return ""
    return INDEX_BELOW.sub(r"<msub><mover>\1\3</mover>\2</msub>", converted)


def inline_formula(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(mathml(node, block=False))
    raise nodes.SkipNode


def formula(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    writer.body.append(f'<div class="math">{mathml(node, block=True)}</div>')
    raise nodes.SkipNode


# Pages link to files of the repository, so that the links work in any file browser. On the site,
# some of these files are pages.
ROOT = Path(__file__).parent.parent
PAGE_OF_FILE = {
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "ARCHITECTURE.md": "architecture",
    "paper/DEVIATIONS.md": "paper/deviations",
    "src/biv/datasets/data/ATTRIBUTION.md": "attribution",
} | {
    f"benchmarks/results/{path.name}": f"benchmarks/{path.stem}"
    for path in (ROOT / "benchmarks" / "results").glob("*.md")
}


def link_to_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace links to files that have a page by links to the page."""
    folder = Path(app.srcdir, docname).parent

    def page(link: re.Match[str]) -> str:
        file = Path(os.path.relpath(folder / link[1], ROOT)).as_posix()
        if file not in PAGE_OF_FILE:
            inside = (folder / link[1]).resolve().is_relative_to(app.srcdir)
            return link[0] if inside else f"](path:{link[1]}"  # a file to download
        path = Path(os.path.relpath(Path(app.srcdir, PAGE_OF_FILE[file]), folder))
        return f"]({path.as_posix()}.md"

    source[0] = re.sub(r"\]\((\.\./[^)#]+\.md)", page, source[0])


def skip(_app: Sphinx, _what: str, _name: str, value: object, skipped: bool, _: Any) -> bool:
    """Skip the fields of named tuples, which the docstring of their class describes."""
    return skipped or str(getattr(value, "__doc__", "")).startswith("Alias for field number")


REFERENCE = re.compile(r"^(\s*)\.\. \[(\d)\] ")
CITATION = re.compile(r"\[(\d)\]_")


def list_references(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    """Turn the footnotes of a docstring ("References") into a numbered list.

    Footnotes of several docstrings on one page would have the same numbers, and MyST does not
    resolve them inside ``eval-rst``.
    """
    lines[:] = [CITATION.sub(r"[\1]", REFERENCE.sub(r"\1\2. ", line)) for line in lines]


def print_unlinked_type(
    _app: Sphinx, _env: BuildEnvironment, node: nodes.Element, text: nodes.TextElement
) -> nodes.TextElement | None:
    """Print a type without a page as text, whether prose or a class of another project.

    Types come from signatures and from the sections of docstrings. Roles, such as ``:func:``, have
    an attribute ``refwarn``, and must have a target.
    """
    is_role = "refwarn" in node
    return text if node["refdomain"] == "py" and not is_role else None


def setup(app: Sphinx) -> None:
    """Register the hooks, and MathML for formulas, which needs neither scripts nor downloads."""
    app.connect("source-read", link_to_pages)
    app.connect("autodoc-process-docstring", list_references)
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", print_unlinked_type)
    app.add_html_math_renderer("mathml", (inline_formula, None), (formula, None))
