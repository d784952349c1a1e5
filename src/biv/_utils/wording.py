"""Messages that name settings, in the form of each front end.

The library raises a :class:`Message` inside an ordinary exception or warning. Its text names
settings as arguments in Python (``y_std``, ``keep=['id']``). The command renders the same object
with its own options (``--target-std``, ``--keep id``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from biv._utils.messages import shell_quoted, shortened


@dataclass(frozen=True)
class Setting:
    """A setting that a message names.

    Attributes
    ----------
    name : str
        Name of the argument in Python.
    value : object, default=None
        Value to give it, or a list of values; None if only the name is meant.
    """

    name: str
    value: object = None

    @property
    def values(self) -> list[object]:
        """The values as a list, which is empty if only the name is meant."""
        if self.value is None or self.value is True:
            return []
        return list(self.value) if isinstance(self.value, (list, tuple)) else [self.value]


Wording = Callable[[Setting], "str | None"]
"""Returns the name of a setting in a front end; None if the front end does not have it."""


def in_python(setting: Setting) -> str:
    """Return a setting as an argument of a function.

    Examples
    --------
    >>> in_python(Setting("y_std")), in_python(Setting("keep", ["a b"]))
    ('y_std', "keep=['a b']")
    """
    value = setting.value
    if value is None:
        return setting.name
    if isinstance(value, (list, tuple)):
        return f"{setting.name}=[{', '.join(map(shortened, value))}]"
    return f"{setting.name}={shortened(value)}"


@dataclass(frozen=True)
class Options:
    """Wording of settings as options of the command.

    Attributes
    ----------
    names : mapping of str to str or None
        Options whose names differ from those of their settings; None for a setting that the command
        does not have.

    Examples
    --------
    >>> OPTIONS(Setting("y_std")), OPTIONS(Setting("keep", ["a b", "c"]))
    ('--target-std', "--keep 'a b' c")
    """

    names: Mapping[str, str | None]

    def __call__(self, setting: Setting) -> str | None:
        """Return the option with its values, quoted for a shell."""
        option = self.names.get(setting.name, f"--{setting.name.replace('_', '-')}")
        if option is None:
            return None
        return " ".join([option, *(shell_quoted(str(value)) for value in setting.values)])


OPTIONS = Options(
    {
        "y_var": "--target-var",
        "y_std": "--target-std",
        "categories": "--category",
        "learning_rate": None,
    }
)
# `biv inspect` and reports advise an option of `biv train`.
ADVICE_OPTIONS = Options({**OPTIONS.names, "calibrate_variance": "biv train --calibrate-variance"})
STREAM_OPTIONS = Options(
    {
        **OPTIONS.names,
        "calibrate_variance": "biv train --calibrate-variance, without --stream,",
        "learning_rate": "--learning-rate",
    }
)


class Message(str):
    """Text that names settings.

    As a string, it is the text for Python. :meth:`render` returns the text for another front end.

    Parameters
    ----------
    template : str
        Template of :meth:`str.format`.
    **values : object
        Values by their names in the template. A value that is a message too is a clause: a front
        end that lacks one of its settings leaves the clause out.

    Examples
    --------
    >>> message = Message("{bars} seems to hold variances", bars=Setting("y_std"))
    >>> message, message.render(OPTIONS)
    ('y_std seems to hold variances', '--target-std seems to hold variances')
    """

    __slots__ = ("_template", "_values")

    _template: str
    _values: Mapping[str, object]

    def __new__(cls, template: str, /, **values: object) -> Message:
        """Create the message with its text for Python."""
        message = super().__new__(cls, _formatted(template, values, in_python) or "")
        message._template, message._values = template, values
        return message

    def render(self, wording: Wording) -> str:
        """Return the text for a front end."""
        return _formatted(self._template, self._values, wording) or ""

    def __add__(self, end: str) -> Message:
        """Return the message with a text appended."""
        return Message("{message}{end}", message=self, end=end)

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep template and values when an exception is sent between processes."""
        return _restored, (self._template, dict(self._values))


def _restored(template: str, values: Mapping[str, object]) -> Message:
    return Message(template, **values)


def _formatted(template: str, values: Mapping[str, object], wording: Wording) -> str | None:
    """Return the text; None if it names a setting that the front end does not have."""
    texts: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Setting):
            text = wording(value)
            if text is None:
                return None
            texts[name] = text
        else:
            texts[name] = value.render(wording) if isinstance(value, Message) else value
    return template.format(**texts)


def render_text(problem: object, wording: Wording) -> str:
    """Return the text of an exception, a warning or a message for a front end.

    Examples
    --------
    >>> render_text(ValueError(Message("choose {name}", name=Setting("name"))), OPTIONS)
    'choose --name'
    """
    if isinstance(problem, BaseException) and len(problem.args) == 1:
        problem = problem.args[0]
    return problem.render(wording) if isinstance(problem, Message) else str(problem)
