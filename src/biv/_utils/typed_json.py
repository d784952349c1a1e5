"""Reading of JSON files that may be damaged or malicious, and conversion to typed values.

A type is a dataclass, a NamedTuple or a TypedDict. msgspec checks every value against its
annotations, and an error names the file and the place in it. NaN and infinity are invalid. Reading
a file never runs code from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec
import numpy as np

from biv._utils.messages import message_of, shortened, wrong_path

MAX_BYTES = 1 << 28
T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
LARGEST_STORED = 1e300  # reports and fits multiply stored numbers, and the product must be finite
Number = Annotated[float, msgspec.Meta(ge=-LARGEST_STORED, le=LARGEST_STORED)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=LARGEST_STORED)]
NonNegative = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_STORED)]
Scalar = str | int | float | bool | None

# Errors that reading a damaged file may raise after its types have been checked. RuntimeWarning is
# included because users may turn warnings into errors.
FAILURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,  # includes RecursionError; torch raises it for parameters of another shape
    RuntimeWarning,
    TypeError,
    ValueError,
)


class DamagedFileError(ValueError):
    """The content of a file cannot be used; the message names the file."""


@contextmanager
def errors_name_file(name: object, what: str = "is damaged") -> Iterator[None]:
    """Turn errors raised inside into an error that names the file.

    Raises
    ------
    DamagedFileError
        If one of `FAILURES` was raised inside.
    """
    try:
        yield
    except DamagedFileError:
        raise
    except FAILURES as error:
        raise DamagedFileError(f"{name} {what}: {_describe_error(error)}") from error


def _describe_error(error: BaseException) -> str:
    """Return the message of an error, preceded by the place in the JSON if that is known."""
    if isinstance(error, KeyError):
        return f"{shortened(error.args[0])} is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    message, _, place = str(error).replace("`", "").partition(" - at $")
    message = re.sub(r"^Expected (.*), got (.*)$", r"must be \1; got \2", message_of(message))
    place = place.lstrip(".")
    if not place:
        return message or type(error).__name__
    return f"{place} {message}" if message.startswith("must be") else f"{place}: {message}"


def convert(value: Any, kind: type[T]) -> T:
    """Convert decoded JSON to a type; an error names the place in the JSON.

    Examples
    --------
    >>> convert([1, 2.5], tuple[float, float])
    (1.0, 2.5)
    """
    return msgspec.convert(value, kind)


def to_json(value: Any) -> Any:
    """Return dataclasses and containers of them as values that `json.dumps` accepts.

    :func:`convert` is the inverse. NaN and infinity become None, because JSON has neither.

    Examples
    --------
    >>> to_json({"a": (1, np.float64(2.5), float("nan"))})
    {'a': [1, 2.5, None]}
    """
    return _finite(msgspec.to_builtins(value, enc_hook=_builtin))


def _builtin(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def decode(content: str | bytes, kind: type[T]) -> T:
    """Decode JSON to a type; an error names the place in the JSON."""
    return msgspec.json.decode(content, type=kind)


class _Header(TypedDict, total=False):
    format: str


def parse(
    name: object,
    content: str | bytes,
    kind: type[T],
    form: str | None = None,
    *,
    what: str = "is damaged",
) -> T:
    """Convert the content of a JSON file to a type.

    Parameters
    ----------
    name : object
        Name of the file, for errors.
    content : str or bytes
        Content of the file.
    kind : type
        Type of the result.
    form : str or None, default=None
        Expected value of its "format"; None if the file has no format.
    what : str, default="is damaged"
        Statement about a file that is invalid, which follows its name in the error.

    Raises
    ------
    DamagedFileError
        If the content is not valid JSON of this type and format.

    Examples
    --------
    >>> parse("a.json", '[1, "x"]', list[float])
    Traceback (most recent call last):
    biv._utils.typed_json.DamagedFileError: a.json is damaged: [1] must be float; got str
    """
    with errors_name_file(name, what):
        if form is not None:
            require_format(name, decode(content, _Header).get("format"), form)
        return decode(content, kind)


def read(path: Path, kind: type[T], form: str | None = None, *, what: str = "is damaged") -> T:
    """Read a JSON file and convert it to a type; see :func:`parse`."""
    return parse(path, read_bytes(path), kind, form, what=what)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file of at most 256 MiB.

    Raises
    ------
    DamagedFileError
        If it does not exist, is not a regular file, or is larger than that.
    """
    if not path.is_file():
        raise DamagedFileError(wrong_path(path, "a regular file"))
    if (size := path.stat().st_size) > MAX_BYTES:
        raise DamagedFileError(f"{path} must have at most {MAX_BYTES:,} bytes; got {size:,}")
    return path.read_bytes()


def require_format(name: object, actual: object, form: str) -> None:
    """Check that a file has the expected format, which ends with a version number.

    Raises
    ------
    DamagedFileError
        If the format differs. If its version is newer, the message says so.
    """
    if actual == form:
        return
    stem, _, version = form.rpartition(" ")
    number = actual.removeprefix(f"{stem} ") if isinstance(actual, str) else ""
    if number.isdecimal() and (len(number), number) > (len(version), version):
        raise DamagedFileError(
            f"{name} was written by a newer biv (format {shortened(actual)}; this version reads "
            f"{form!r}): upgrade biv"
        )
    raise DamagedFileError(f"{name} must be a {form!r}; got {shortened(actual)}")
