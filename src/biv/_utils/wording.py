"""Messages that name settings, which each front end words in its own way.

The library raises a :class:`Message` inside an ordinary exception or warning. It is worded
for Python (``y_std``, ``keep=['id']``); the command words the same object by its options
(``--target-std``, ``--keep id``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from biv._utils.messages import shell_quoted, shortened


@dataclass(frozen=True)
class Setting:
    """A setting that a message names.

    Attributes:
        name: Its name in Python.
        value: The value to give it, or a list of them; None where only the name is meant.
    """

    name: str
    value: object = None

    @property
    def values(self) -> list[object]:
        """The values, of which there may be one or none."""
        if self.value is None or self.value is True:
            return []
        return list(self.value) if isinstance(self.value, (list, tuple)) else [self.value]


Wording = Callable[[Setting], "str | None"]
"""How a front end words a setting; None if it has no such setting."""


def in_python(setting: Setting) -> str:
    """Word a setting as an argument of a function.

    Example:
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
    """Words a setting as an option of the command.

    Attributes:
        names: Options whose names are not those of their settings; None for a setting that the
            command does not have.

    Example:
        >>> OPTIONS(Setting("y_std")), OPTIONS(Setting("keep", ["a b", "c"]))
        ('--target-std', "--keep 'a b' c")
    """

    names: Mapping[str, str | None]

    def __call__(self, setting: Setting) -> str | None:
        """Return the option with its values, as a shell takes them."""
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
# What `biv inspect` and reports advise is an option of `biv train`.
ADVICE_OPTIONS = Options({**OPTIONS.names, "calibrate_variance": "biv train --calibrate-variance"})
STREAM_OPTIONS = Options(
    {
        **OPTIONS.names,
        "calibrate_variance": "biv train --calibrate-variance, without --stream,",
        "learning_rate": "--learning-rate",
    }
)


class Message(str):
    """A text that names settings: a template as of `str.format`, and its values.

    It is the text as Python's users read it; :meth:`worded` words its settings for another front
    end. A value may be a message too: a clause, which is left out by a front end without its
    setting.

    Args:
        template: The template.
        values: Values by their names in the template.

    Example:
        >>> message = Message("{bars} seems to hold variances", bars=Setting("y_std"))
        >>> message, message.worded(OPTIONS)
        ('y_std seems to hold variances', '--target-std seems to hold variances')
    """

    __slots__ = ("_template", "_values")

    _template: str
    _values: Mapping[str, object]

    def __new__(cls, template: str, /, **values: object) -> Message:
        """Word it for Python."""
        message = super().__new__(cls, _formatted(template, values, in_python) or "")
        message._template, message._values = template, values
        return message

    def worded(self, wording: Wording) -> str:
        """Return the text as a front end words it."""
        return _formatted(self._template, self._values, wording) or ""

    def __add__(self, end: str) -> Message:
        """Append a text."""
        return Message("{message}{end}", message=self, end=end)

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep template and values, for exceptions that come from other processes."""
        return _restored, (self._template, dict(self._values))


def _restored(template: str, values: Mapping[str, object]) -> Message:
    return Message(template, **values)


def _formatted(template: str, values: Mapping[str, object], wording: Wording) -> str | None:
    """Return the text; None if it names a setting that the front end does not have."""
    words: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Setting):
            word = wording(value)
            if word is None:
                return None
            words[name] = word
        else:
            words[name] = worded(value, wording) if isinstance(value, Message) else value
    return template.format(**words)


def worded(problem: object, wording: Wording) -> str:
    """Return the text of an exception, a warning or a message as a front end words it.

    Example:
        >>> worded(ValueError(Message("choose {name}", name=Setting("name"))), OPTIONS)
        'choose --name'
    """
    if isinstance(problem, BaseException) and len(problem.args) == 1:
        problem = problem.args[0]
    return problem.worded(wording) if isinstance(problem, Message) else str(problem)
