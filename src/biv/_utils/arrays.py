"""NumPy in, NumPy out; tensor in, tensor out: one torch implementation serves both."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from biv._utils import validation
from biv._utils.messages import message_of, shortened
from biv._utils.pages import argument_hint

NUMPY_DTYPES = (torch.float16, torch.float32, torch.float64)
LARGEST = 1e75  # of labels: standard errors are made of fourth powers, which are finite up to here

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Array = TypeVar("Array", FloatArray, Tensor)


def to_tensor(name: str, value: object) -> Tensor:
    """A floating-point tensor of an array-like; a tensor must be of a floating-point dtype already.

    NumPy's integers become float64, as NumPy itself would have them; torch's are an error, as torch
    promotes less freely and an integer error bar is more often a slip.
    """
    if isinstance(value, Tensor):
        return validation.floating_tensor(name, value)
    # A copy: arrays may be read-only or strided backwards, which torch does not take.
    return torch.from_numpy(np.array(to_float_array(name, value), order="C"))


def reject_masked_array(name: str, value: object) -> None:
    """Raise TypeError for a masked array, of which NumPy would use what the mask hides."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must not be a masked array, whose mask would be lost; got one: use "
            f"{name}.filled(np.nan) for targets, {name}.filled(np.inf) for variances"
        )


def check_magnitude(name: str, values: npt.NDArray[Any], limit: float) -> None:
    """Raise for numbers whose powers overflow or vanish; infinities and NaN are not looked at.

    Args:
        name: Name of the argument.
        values: Rows of numbers.
        limit: Upper limit of the absolute values; its reciprocal is the lower limit of the largest.
    """
    size = np.where(np.isfinite(values), np.abs(values), 0.0)
    largest = size.max(initial=0.0)
    if largest > limit:
        row = int(np.argwhere(size > limit)[0][0]) if size.ndim else 0
        raise ValueError(
            f"{name} must be at most {limit:g} in size, for its powers to be finite; got "
            f"{largest:g}, first in row {row}: choose another unit"
        )
    if 0 < largest < 1 / limit:
        raise ValueError(
            f"{name} must not all be below {1 / limit:g} in size, for its powers not to vanish; "
            f"got {largest:g} at most: choose another unit"
        )


def real_numbers(name: str, given: object) -> npt.NDArray[np.float64]:
    """Real numbers as float64, gaps as NaN.

    Raises:
        ValueError: Some are none.
    """
    reject_masked_array(name, given)
    check_tensor(name, given)
    array = np.asarray(cells_to_float(name, given))
    try:
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        said = message_of(error)
        raise ValueError(f"{name} must hold numbers: {said}{argument_hint(name)}") from error


class CellError(TypeError, ValueError):
    """A cell is no number; NumPy raises one or the other, by the type of the cell."""


def cells_to_float(name: str, given: Any, hint: str = "") -> Any:
    """Return Python objects and texts as float64, None and pandas.NA as NaN; all else as given.

    Args:
        name: Name of the argument.
        given: An array-like.
        hint: How to have other cells than numbers.

    Raises:
        CellError: A cell is no number; the message names its row, and its column if there are some.
        ValueError: A cell is an integer too large for a float, the rows differ in length, or the
            numbers are complex.
    """
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be an array of numbers: {error}{argument_hint(name)}"
        ) from error
    if array.dtype.kind == "c":  # NumPy would drop the imaginary parts
        raise ValueError(
            f"{name} must hold numbers: they must be real; got {array.dtype} (Complex data not "
            f"supported, as scikit-learn says it){argument_hint(name)}"
        )
    if array.ndim == 0 or array.dtype.kind not in "OSU":
        return given
    with suppress(TypeError, ValueError, OverflowError):  # nearly always, and quickly
        return array.astype(np.float64)
    numbers = np.empty(array.shape)
    gaps = (None, getattr(sys.modules.get("pandas"), "NA", None))
    for place, cell in np.ndenumerate(array.astype(object)):  # NumPy has its own texts
        where = f"in row {place[0]}" + (f", column {place[1]}" if len(place) > 1 else "")
        try:
            numbers[place] = np.nan if any(cell is gap for gap in gaps) else float(cell)
        except OverflowError:
            raise ValueError(
                f"{name} must be finite; got an integer too large for a float {where}"
            ) from None
        except (TypeError, ValueError) as error:
            found = f"{shortened(cell)} {where}"
            if isinstance(error, TypeError):  # a ValueError repeats the cell, of any length
                found += f": {error}"
            raise CellError(
                f"{name} must hold numbers; got {found}{hint}{argument_hint(name)}"
            ) from None
    return numbers


@contextmanager
def errors_name_argument(name: str) -> Iterator[None]:
    """Have scikit-learn's checks name the argument, and NumPy say nothing of huge numbers."""
    try:
        with np.errstate(all="ignore"):
            yield
    except OverflowError:
        raise ValueError(f"{name} must be finite; got an integer too large for a float") from None
    except (TypeError, ValueError) as error:
        said = message_of(error)
        is_named = re.search(rf"\b{name}\b", said) is not None
        if is_named and said == str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(said if is_named else f"{name}: {said}") from error


def check_tensor(name: str, value: object) -> None:
    """Raise TypeError for tensors that NumPy cannot read."""
    if isinstance(value, Tensor):
        validation.dense_tensor(name, value)
        if value.requires_grad:
            raise TypeError(f"{name} must not require grad; got it does: use {name}.detach()")
        if value.is_floating_point() and value.dtype not in NUMPY_DTYPES:
            raise TypeError(
                f"{name} must have a dtype that NumPy has; got {value.dtype}: use {name}.float()"
            )


def variances(name: str, value: object) -> Tensor:
    """Variances as a tensor, none of them negative or NaN, and no zero of a negative reciprocal."""
    tensor = to_tensor(name, value) + 0.0
    if validation.values_are_readable():
        validation.check_elements(name, tensor, tensor >= 0, "non-negative and not NaN")
    return tensor


def to_float_array(name: str, value: object) -> FloatArray:
    """A NumPy array of float16, float32 or float64 in native byte order."""
    if isinstance(value, Tensor):
        tensor = validation.floating_tensor(name, value).detach().cpu()
        return cast(
            FloatArray, (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        )
    reject_masked_array(name, value)
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(
            f"{name} must be an array of real numbers; got {validation.describe(value)}"
        )
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        return array.astype(np.float64)
    # FITS files, for one, have the other byte order.
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def to_kind_of(value: object, result: Tensor) -> Any:
    """`result` as the kind that `value` was: a tensor for a tensor, NumPy for all else."""
    return result if isinstance(value, Tensor) else result.numpy()[()]


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: half precision has neither the range nor the digits for weights."""
    return torch.promote_types(dtype, torch.float32)
