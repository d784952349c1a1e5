"""JSON from files that may be damaged or hostile: converted to types, or refused by file and place.

A type is a dataclass, a NamedTuple or a TypedDict, whose annotations msgspec holds every value to.
Neither NaN nor infinity is valid. No code of a file is run.
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

from biv._utils.messages import message_of, shortened

MAX_BYTES = 1 << 28
T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
# Of reports and fits, which multiply them: what a few times as much is finite of.
LARGEST_STORED = 1e300
Number = Annotated[float, msgspec.Meta(ge=-LARGEST_STORED, le=LARGEST_STORED)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=LARGEST_STORED)]
NonNegative = Annotated[float, msgspec.Meta(ge=0, le=LARGEST_STORED)]
Scalar = str | int | float | bool | None

# What reading a damaged file may raise after its types have been checked. A warning is there for
# those who turn warnings into errors.
FAILURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,  # with RecursionError; torch raises it for parameters of another shape
    RuntimeWarning,
    TypeError,
    ValueError,
)


class DamagedFileError(ValueError):
    """A file whose content cannot be used; the message names it."""


@contextmanager
def errors_name_file(name: object, what: str = "is damaged") -> Iterator[None]:
    """Name the file that an error inside is about.

    Raises:
        DamagedFileError: Something failed inside.
    """
    try:
        yield
    except DamagedFileError:
        raise
    except FAILURES as error:
        raise DamagedFileError(f"{name} {what}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """Return what is wrong, after the place in the JSON if that is known."""
    if isinstance(error, KeyError):
        return f"{shortened(error.args[0])} is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    said, _, place = str(error).replace("`", "").partition(" - at $")
    said = re.sub(r"^Expected (.*), got (.*)$", r"must be \1; got \2", message_of(said))
    place = place.lstrip(".")
    if not place:
        return said or type(error).__name__
    return f"{place} {said}" if said.startswith("must be") else f"{place}: {said}"


def convert(value: Any, kind: type[T]) -> T:
    """Return what JSON says as a type; an error names the place in the JSON.

    Example:
        >>> convert([1, 2.5], tuple[float, float])
        (1.0, 2.5)
    """
    return msgspec.convert(value, kind)


def to_json(value: Any) -> Any:
    """Return a dataclass, or whatever holds some, as `json.dumps` takes it; `convert` reads it.

    NaN and infinity become None, which JSON has in their place.

    Example:
        >>> to_json({"a": (1, np.float64(2.5), float("nan"))})
        {'a': [1, 2.5, None]}
    """
    return _finite(msgspec.to_builtins(value, enc_hook=_builtin))


def _builtin(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def decode(content: str | bytes, kind: type[T]) -> T:
    """Return JSON as a type; an error names the place in the JSON."""
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
    """Return the content of a JSON file as a type.

    Args:
        name: Name of the file, for errors.
        content: Content of the file.
        kind: What it must be.
        form: What its "format" must be; None if it has none.
        what: Is said of a file that is something else.

    Raises:
        DamagedFileError: It is something else.

    Example:
        >>> parse("a.json", '[1, "x"]', list[float])
        Traceback (most recent call last):
        biv._utils.typed_json.DamagedFileError: a.json is damaged: [1] must be float; got str
    """
    with errors_name_file(name, what):
        if form is not None:
            require_format(name, decode(content, _Header).get("format"), form)
        return decode(content, kind)


def read(path: Path, kind: type[T], form: str | None = None, *, what: str = "is damaged") -> T:
    """Return what a JSON file holds as a type; see :func:`parse`."""
    return parse(path, read_bytes(path), kind, form, what=what)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file of reasonable size.

    Raises:
        DamagedFileError: It is no regular file, or larger than 256 MiB.
    """
    if not path.is_file():
        raise DamagedFileError(f"{path} must be a regular file")
    if (size := path.stat().st_size) > MAX_BYTES:
        raise DamagedFileError(f"{path} must have at most {MAX_BYTES:,} bytes; got {size:,}")
    return path.read_bytes()


def require_format(name: object, found: object, form: str) -> None:
    """Check the version of a file's format, the number that it ends with.

    Raises:
        DamagedFileError: It is another; if it is newer, the message says so.
    """
    if found == form:
        return
    stem, _, own = form.rpartition(" ")
    number = found.removeprefix(f"{stem} ") if isinstance(found, str) else ""
    if number.isdecimal() and (len(number), number) > (len(own), own):
        raise DamagedFileError(
            f"{name} was written by a newer biv (format {shortened(found)}; this version reads "
            f"{form!r}): upgrade biv"
        )
    raise DamagedFileError(f"{name} must be a {form!r}; got {shortened(found)}")
