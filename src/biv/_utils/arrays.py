"""Conversion of arguments to tensors and back.

Functions that take arrays or tensors are implemented once, on tensors. They return NumPy arrays for
NumPy arguments and tensors for tensors.
"""

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
LARGEST = 1e75  # largest label: standard errors use fourth powers, which are finite up to here

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Array = TypeVar("Array", FloatArray, Tensor)


def to_tensor(name: str, value: object) -> Tensor:
    """Return an array-like as a floating-point tensor.

    NumPy integers become float64, as in NumPy's own arithmetic. A tensor of integers is an error:
    torch promotes less freely, and an integer error bar is more often a mistake.
    """
    if isinstance(value, Tensor):
        return validation.floating_tensor(name, value)
    # Copy, because torch accepts neither read-only arrays nor negative strides.
    return torch.from_numpy(np.array(to_float_array(name, value), order="C"))


def reject_masked_array(name: str, value: object) -> None:
    """Raise TypeError for a masked array, because NumPy would use the values behind the mask."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must not be a masked array, because its mask would be lost: use "
            f"{name}.filled(np.nan) for targets, {name}.filled(np.inf) for variances"
        )


def check_magnitude(name: str, values: npt.NDArray[Any], limit: float) -> None:
    """Raise ValueError for numbers whose powers overflow or underflow; ignore infinities and NaN.

    Parameters
    ----------
    name : str
        Name of the argument.
    values : ndarray
        Rows of numbers.
    limit : float
        Upper limit of the absolute values. The largest of them must be at least 1/limit.
    """
    size = np.where(np.isfinite(values), np.abs(values), 0.0)
    largest = size.max(initial=0.0)
    if largest > limit:
        row = int(np.argwhere(size > limit)[0][0]) if size.ndim else 0
        raise ValueError(
            f"{name} must be at most {limit:g} in magnitude, so that its powers are finite; got "
            f"{largest:g}, first in row {row}: choose another unit"
        )
    if 0 < largest < 1 / limit:
        raise ValueError(
            f"{name} must not all be below {1 / limit:g} in magnitude, because its powers would "
            f"underflow; got at most {largest:g}: choose another unit"
        )


def to_real_numbers(name: str, values: object) -> npt.NDArray[np.float64]:
    """Return an array-like of real numbers as float64, with missing cells as NaN.

    Raises
    ------
    ValueError
        If a cell is not a number.
    """
    reject_masked_array(name, values)
    check_tensor(name, values)
    array = np.asarray(cells_to_float(name, values))
    try:
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        message = message_of(error)
        raise ValueError(f"{name} must hold numbers: {message}{argument_hint(name)}") from error


class CellError(TypeError, ValueError):
    """A cell is not a number.

    It has both bases because NumPy raises either error, depending on the type of the cell.
    """


def cells_to_float(name: str, values: Any, hint: str = "") -> Any:
    """Return Python objects and strings as float64, and any other array-like unchanged.

    None and pandas.NA become NaN.

    Parameters
    ----------
    name : str
        Name of the argument.
    values : array-like
        Cells to convert.
    hint : str, default=""
        Advice on cells that are not numbers, appended to the error.

    Raises
    ------
    CellError
        If a cell is not a number. The message names its row, and its column if there are columns.
    ValueError
        If a cell is an integer too large for a float, the rows differ in length, or the numbers are
        complex.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be an array of numbers: {error}{argument_hint(name)}"
        ) from error
    # NumPy would drop the imaginary parts. scikit-learn's checks expect the text in parentheses.
    if array.dtype.kind == "c":
        raise ValueError(
            f"{name} must hold real numbers; got {array.dtype} (Complex data not supported)"
            f"{argument_hint(name)}"
        )
    if array.ndim == 0 or array.dtype.kind not in "OSU":
        return values
    with suppress(TypeError, ValueError, OverflowError):  # fast, and nearly always sufficient
        return array.astype(np.float64)
    numbers = np.empty(array.shape)
    missing = (None, getattr(sys.modules.get("pandas"), "NA", None))
    for index, cell in np.ndenumerate(array.astype(object)):  # np.str_ becomes str
        where = f"in row {index[0]}" + (f", column {index[1]}" if len(index) > 1 else "")
        try:
            numbers[index] = np.nan if any(cell is marker for marker in missing) else float(cell)
        except OverflowError:
            raise ValueError(
                f"{name} must be finite; got an integer too large for a float {where}"
            ) from None
        except (TypeError, ValueError) as error:
            value = f"{shortened(cell)} {where}"
            if isinstance(error, TypeError):  # a ValueError repeats the cell at its full length
                value += f": {error}"
            raise CellError(
                f"{name} must hold numbers; got {value}{hint}{argument_hint(name)}"
            ) from None
    return numbers


@contextmanager
def errors_name_argument(name: str) -> Iterator[None]:
    """Name the argument in errors of scikit-learn's checks, and silence NumPy's overflows."""
    try:
        with np.errstate(all="ignore"):
            yield
    except OverflowError:
        raise ValueError(f"{name} must be finite; got an integer too large for a float") from None
    except (TypeError, ValueError) as error:
        message = message_of(error)
        is_named = re.search(rf"\b{name}\b", message) is not None
        if is_named and message == str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(message if is_named else f"{name}: {message}") from error


def check_tensor(name: str, value: object) -> None:
    """Raise TypeError for tensors that NumPy cannot read."""
    if isinstance(value, Tensor):
        validation.dense_tensor(name, value)
        if value.requires_grad:
            raise TypeError(
                f"{name} must not require grad; got requires_grad=True: use {name}.detach()"
            )
        if value.is_floating_point() and value.dtype not in NUMPY_DTYPES:
            raise TypeError(
                f"{name} must have a dtype that NumPy supports; got {value.dtype}: "
                f"use {name}.float()"
            )


def to_variances(name: str, value: object) -> Tensor:
    """Return variances as a tensor, checked to be neither negative nor NaN."""
    tensor = to_tensor(name, value) + 0.0  # turns -0.0, whose reciprocal is -inf, into 0.0
    if validation.values_are_readable():
        validation.check_elements(name, tensor, tensor >= 0, "non-negative and not NaN")
    return tensor


def to_float_array(name: str, value: object) -> FloatArray:
    """Return a NumPy array of float16, float32 or float64 in native byte order."""
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
    # FITS files, for example, have the opposite byte order.
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def to_kind_of(value: object, result: Tensor) -> Any:
    """Return `result` as a tensor if `value` is one, and as a NumPy array otherwise."""
    return result if isinstance(value, Tensor) else result.numpy()[()]


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in; half precision lacks range and digits for weights."""
    return torch.promote_types(dtype, torch.float32)
