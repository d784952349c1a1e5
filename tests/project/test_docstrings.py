"""Every public name on the pages of docs/api has a complete numpydoc docstring.

A complete docstring has

- a summary of one line;
- a Parameters section with exactly the parameters of the signature, each with its type, and
  with its default if it has one (a class may describe them under Attributes, and a method may refer
  to the parameters of another method);
- a Returns section if a value is returned;
- a doctest with expected output (that of a method may be in the docstring of its class).
"""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

API = Path(__file__).parents[2] / "docs" / "api"
REFERENCE = re.compile(r"The parameters are those of\s+:meth:")
GOOGLE = r"^ *(Args|Arguments|Attributes|Returns|Yields|Raises|Example|Examples):$"


# The public names, as the directives of the pages select them.


def directives(text):
    """Yield each directive of the eval-rst blocks of a page: its kind, argument and options."""
    for block in re.findall(r"^```\{eval-rst\}\n(.*?)^```", text, flags=re.M | re.S):
        for kind, argument, lines in re.findall(
            r"^\.\. (\w+):: (\S+)\n((?:   :.*\n?)*)", block, flags=re.M
        ):
            options = dict(re.findall(r"^   :([\w-]+): ?(.*)$", lines, flags=re.M))
            yield kind, argument, options


def listed(option):
    """Return the names in an option of a directive."""
    return [name.strip() for name in option.split(",") if name.strip()]


def resolve(name):
    """Return the object of a dotted name, whatever part of it is a module."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(name)


def members(module, options):
    """Return the dotted names that automodule documents."""
    exported = getattr(module, "__all__", None)
    if exported is None or "imported-members" not in options:
        exported = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    return [
        f"{module.__name__}.{name}"
        for name in exported
        if name not in listed(options.get("exclude-members", ""))
        and callable(getattr(module, name))
    ]


def methods(cls, options):
    """Return the methods of a class that autoclass documents."""
    chosen = listed(options.get("members", ""))
    return [
        name
        for name in chosen or vars(cls)
        if not name.startswith("_")
        and name not in listed(options.get("exclude-members", ""))
        and callable(getattr(cls, name))
        and inspect.getdoc(getattr(cls, name))
        and not inspect.isclass(getattr(cls, name))
    ]


def public_names():
    """Return each function, class and method (with its class) of the reference by dotted name."""
    public = {}

    def add(name, options):
        value = resolve(name)
        public[name] = (value, None)
        if inspect.isclass(value):
            for method in methods(value, options):
                public[f"{name}.{method}"] = (getattr(value, method), value)

    for page in sorted(API.glob("*.md")):
        current = ""
        for kind, argument, options in directives(page.read_text("utf-8")):
            if kind in ("automodule", "currentmodule"):
                current = argument
            if kind == "automodule" and "no-members" not in options:
                for name in members(resolve(argument), options):
                    add(name, {})
            if kind in ("autofunction", "autoclass"):
                add(argument if argument.startswith("biv.") else f"{current}.{argument}", options)
    return public


# The sections of a docstring.


def sections(text):
    """Return the text of each numpydoc section by its title; the summary has the title ""."""
    parts = re.split(r"^([A-Z][\w ]+)\n-{3,}\n", text, flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def fields(section):
    """Return the names that a section describes, each with its type."""
    joined = re.sub(r"\\\n\s*", "", section)
    described = {}
    for names, kind in re.findall(r"^(\*{0,2}\w[\w, *]*?)(?: *: *(.*))?$", joined, flags=re.M):
        described |= {name.strip().lstrip("*"): kind.strip() for name in names.split(",")}
    return described


def parameters(value, cls):
    """Return the parameters of a signature that a user passes."""
    signature = inspect.signature(value)
    passed = list(signature.parameters.values())
    if inspect.isclass(value) and {one.name for one in passed} == {"args", "kwargs"}:
        return []  # a base class without a constructor
    bound = cls is None or inspect.ismethod(value)  # a function, a class or a class method
    if not bound and not isinstance(inspect.getattr_static(cls, value.__name__), staticmethod):
        passed = passed[1:]  # without self
    return [one for one in passed if not one.name.startswith("_")]


def states_default(kind, default):
    """Return whether a type states the default; "optional" is None or a function."""
    if default is inspect.Parameter.empty:
        return True
    return "default" in kind or ((default is None or callable(default)) and "optional" in kind)


def returns_value(value):
    """Return whether the annotation of a function promises a value."""
    annotation = inspect.signature(value).return_annotation
    return annotation not in (None, "None", inspect.Signature.empty, "NoReturn")


def examples(text):
    """Return the doctest examples that print something."""
    return [example for example in doctest.DocTestParser().get_examples(text) if example.want]


def attributes(cls):
    """Return the parameters and attributes that a class and its bases describe, with types."""
    described = {}
    for base in reversed(cls.__mro__):
        parts = sections(inspect.cleandoc(base.__doc__ or ""))
        described |= fields(parts.get("Parameters", "")) | fields(parts.get("Attributes", ""))
    return described


# The law.


def offences(value, cls=None):
    """Yield each problem of a docstring as a text."""
    text = inspect.getdoc(value) or ""
    parts = sections(text)
    if not re.match(r"\S[^\n]*\.(\n\n|\n?$)", text):
        yield "the summary is not one line that ends in a period"
    if google := re.search(GOOGLE, text, flags=re.M):
        yield f"{google[0].strip()} is not a numpydoc section"
    described = fields(parts.get("Parameters", ""))
    expected = parameters(value, cls)
    names = [parameter.name for parameter in expected]
    if inspect.isclass(value) and not described:  # as data classes and named tuples do
        described = {name: kind for name, kind in attributes(value).items() if name in names}
    if list(described) != names and not (described == {} and REFERENCE.search(text)):
        yield f"describes the parameters {list(described)}; the signature has {names}"
    for parameter in expected:
        kind = described.get(parameter.name)
        if kind == "":
            yield f"{parameter.name} has no type"
        elif kind and not states_default(kind, parameter.default):
            yield f"{parameter.name} has no default"
    returned = not inspect.isclass(value) and returns_value(value)
    if returned and not {"Returns", "Yields"} & set(parts):
        yield "has no Returns section"
    if not examples(text) and not (cls and examples(inspect.getdoc(cls) or "")):
        yield "has no example with expected output"  # that of a method may be in its class


def test_every_public_name_has_a_complete_docstring():
    results = {
        name: list(offences(value, cls))
        for name, (value, cls) in public_names().items()
        if not issubclass(value if inspect.isclass(value) else object, Warning)
    }
    shown = [f"{name}: {'; '.join(problems)}" for name, problems in results.items() if problems]
    assert not shown, f"{len(shown)} of {len(results)} docstrings:\n" + "\n".join(shown)


# The law can fail, and the pages are read as the site reads them.


def complete(x, y=1.0):
    """Return the sum of two numbers.

    Parameters
    ----------
    x : float
        One number.
    y : float, default=1.0
        Another number.

    Returns
    -------
    float
        Their sum.

    Examples
    --------
    >>> 1 + 1
    2
    """
    return x + y


complete.__annotations__ = {"return": float}


def test_a_complete_docstring_has_no_offence():
    assert list(offences(complete)) == []


@pytest.mark.parametrize(
    ("old", "new", "offence"),
    [
        ("numbers.\n", "numbers\n", "the summary is not one line"),
        ("x : float\n    One number.\n", "", "the signature has ['x', 'y']"),
        ("x : float", "x", "x has no type"),
        (", default=1.0", "", "y has no default"),
        ("Returns\n-------", "Notes\n-----", "has no Returns section"),
        ("\n2", "", "has no example with expected output"),
        ("x : float", "z : float", "describes the parameters ['z', 'y']"),
        ("Returns\n-------\n", "Returns:\n", "Returns: is not a numpydoc section"),
    ],
)
def test_an_incomplete_docstring_is_an_offence(old, new, offence):
    def changed(x, y=1.0) -> float:
        return x + y

    changed.__doc__ = inspect.getdoc(complete).replace(old, new)
    assert any(offence in problem for problem in offences(changed))


def test_the_names_are_those_of_the_site():
    names = public_names()
    assert {
        "biv.biv_loss",
        "biv.BIVLoss",
        "biv.VarianceLoss.window",
        "biv.BIVRegressor.fit",
    } <= set(names)
    assert {"biv.labels.repeats", "biv.noise.Gamma", "biv.metrics.noise_corrected_mse"} <= set(
        names
    )
    assert "biv.BIVRegressor.set_fit_request" not in names
    assert len(names) > 100
