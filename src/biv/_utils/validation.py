"""Checks of arguments. Every error names the argument, what was expected and what was found."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Collection
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from biv._utils.messages import shortened
from biv._utils.pages import PAGE_OF, argument_hint, page_hint

BAD_ROWS_SHOWN = 3
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # torch computes in these
LARGEST_INTEGER = 2**32 - 1  # largest integer setting, because it is NumPy's largest seed


def values_are_readable() -> bool:
    """Return whether Python code may read the values of tensors at this point.

    It may not while compiling or inside `torch.func` transforms, because a branch on a value would
    break the graph or have no meaning there.
    """
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


class Range(NamedTuple):
    """Interval of valid numbers; it includes `limit` only if `closed`."""

    least: float = -math.inf
    open_below: bool = False
    limit: float = math.inf
    closed: bool = False

    def __contains__(self, number: object) -> bool:
        # NaN fails every comparison, and so is in no range.
        assert isinstance(number, float)
        above = number > self.least if self.open_below else number >= self.least
        return above and (number <= self.limit if self.closed else number < self.limit)

    def __str__(self) -> str:
        if self.least == -math.inf:
            return "a finite number"
        if self.limit == math.inf:
            finite = "a number" if self.closed else "a finite number"
            return f"{finite} {'>' if self.open_below else '>='} {self.least:g}"
        left, right = "(" if self.open_below else "[", "]" if self.closed else ")"
        return f"in {left}{self.least:g}, {self.limit:g}{right}"


FINITE = Range(open_below=True)
NON_NEGATIVE = Range(0.0)
POSITIVE = Range(0.0, open_below=True)


def real_number(name: str, value: object, allowed: Range) -> float | Tensor:
    """Check a real number and return it as a float, or as a 0-d tensor if it was one."""
    if type(value) is float and value in allowed:  # the usual case, made fast for training loops
        return value + 0.0
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, Tensor):
        _constant_scalar(name, value, allowed)
        if not values_are_readable():
            return value
        number = float(value)
    elif isinstance(value, (int, float, Real)) and not isinstance(value, bool):
        try:
            number = value = float(value) + 0.0  # turns -0.0, whose reciprocal is -inf, into 0.0
        except OverflowError:
            raise ValueError(
                f"{name} must be {allowed}; got an integer too large for a float{_page(name)}"
            ) from None
    else:
        raise TypeError(f"{name} must be {allowed}; got {describe(value)}{_page(name)}")
    if number not in allowed:
        raise ValueError(f"{name} must be {allowed}; got {number:g}{_page(name)}")
    return value


def _page(name: str) -> str:
    # A single number named "variance" belongs to a noise model; the page is about error bars.
    return "" if name == "variance" else argument_hint(name)


def _loss_page(name: str) -> str:
    # These errors are about shapes and tensors, which the page of the loss explains.
    return page_hint("loss") if name in PAGE_OF else ""


def integer(name: str, value: object, *, at_least: int, at_most: int = LARGEST_INTEGER) -> int:
    """Check an integer of any type but bool, and return it as an int."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be an integer >= {at_least}; got {describe(value)}")
    if number < at_least:
        raise ValueError(f"{name} must be an integer >= {at_least}; got {_shortened(number)}")
    if number > at_most:
        raise ValueError(f"{name} must be an integer <= {at_most:,}; got {_shortened(number)}")
    return number


def _shortened(number: int) -> str:
    # Python refuses to print thousands of digits.
    bits = number.bit_length()
    return str(number) if bits < 100 else f"an integer of {bits} bits"


def _constant_scalar(name: str, value: Tensor, allowed: Range) -> None:
    if value.ndim != 0 or not value.is_floating_point():
        raise TypeError(
            f"{name} must be {allowed} or a floating-point tensor of shape (); "
            f"got {describe(value)}"
        )
    check_no_grad(name, value)


def check_one_of(name: str, value: object, allowed: Collection[object], more: str = "") -> None:
    """Check that an argument is one of the allowed strings or booleans.

    Parameters
    ----------
    name : str
        Name of the argument.
    value : object
        Value of the argument.
    allowed : collection
        Allowed values.
    more : str, default=""
        Other values that the caller allows, appended to the list in the error.
    """
    try:
        known = value in frozenset(allowed)  # arrays and pandas.NA have no usable `==`
    except TypeError:  # not hashable
        known = False
    if not known:
        names = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {names}{more}; got {shortened(value)}")


def generator(value: object) -> np.random.Generator:
    """Check that an argument is a NumPy generator, and return it; seeds are invalid."""
    if not isinstance(value, np.random.Generator):
        raise TypeError(
            "generator must be a numpy.random.Generator, such as numpy.random.default_rng(0); "
            f"got {describe(value)}"
        )
    return value


def floating_tensor(name: str, value: object) -> Tensor:
    """Check that an argument is a dense tensor of a floating-point dtype, and return it."""
    if not isinstance(value, Tensor):
        fix = f": use torch.as_tensor({name})" if isinstance(value, (np.ndarray, list)) else ""
        raise TypeError(
            f"{name} must be a torch.Tensor; got {describe(value)}{fix}{_loss_page(name)}"
        )
    if value.dtype not in DTYPES:  # 8-bit dtypes are for storage and support few operations
        fix = "" if value.is_complex() else f": use {name}.float()"
        raise TypeError(
            f"{name} must have a floating-point dtype such as torch.float32; got {value.dtype}{fix}"
        )
    return dense_tensor(name, value)


def dense_tensor(name: str, value: Tensor) -> Tensor:
    """Check that a tensor is neither sparse nor nested, and return it."""
    if value.layout != torch.strided or value.is_nested:
        layout = "nested" if value.is_nested else value.layout
        fix = "" if value.is_nested else f": use {name}.to_dense()"
        raise TypeError(f"{name} must be a dense tensor; got layout {layout}{fix}")
    return value


def bool_tensor(name: str, value: object) -> Tensor:
    """Check that an argument is a dense tensor of dtype bool, and return it."""
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        raise TypeError(
            f"{name} must be a torch.Tensor of dtype torch.bool, True where an element is used; "
            f"got {describe(value)}{argument_hint(name)}"
        )
    return dense_tensor(name, value)


def check_no_grad(name: str, value: Tensor) -> None:
    """Check that a tensor does not require grad; weights are constants of a loss."""
    if value.requires_grad:
        raise ValueError(
            f"{name} must not require grad, because the weights are constants of the loss; "
            f"got requires_grad=True: use {name}.detach(){_loss_page(name)}"
        )


def check_same_device(name: str, value: Tensor, like_name: str, like: Tensor) -> None:
    """Check that two tensors are on the same device."""
    if value.device != like.device:
        raise ValueError(
            f"{name} must be on the same device as {like_name}, {like.device}; got {value.device}"
        )


def check_same_shape(name: str, value: Tensor, like_name: str, like: Tensor) -> None:
    """Check that two tensors have equal shapes; nothing is broadcast."""
    if value.shape != like.shape:
        raise ValueError(
            f"{name} must have the shape of {like_name}, {tuple(like.shape)}; "
            f"got {tuple(value.shape)}{_reshape_hint(name, value, like_name, like)}"
            f"{_loss_page(name)}"
        )


def expanded(name: str, value: Tensor, like_name: str, like: Tensor) -> Tensor:
    """Return `value` at the shape of `like`; it must have that shape, or (N, 1) for (N, D)."""
    if value.ndim == like.ndim == 2 and value.shape == (like.shape[0], 1):
        return value.expand(like.shape)
    if value.shape != like.shape:
        one_per_row = f" or ({like.shape[0]}, 1)" if like.ndim == 2 and like.shape[1] != 1 else ""
        raise ValueError(
            f"{name} must have the shape of {like_name}, {tuple(like.shape)}{one_per_row}; "
            f"got {tuple(value.shape)}{_reshape_hint(name, value, like_name, like)}"
            f"{_loss_page(name)}"
        )
    return value


def _reshape_hint(name: str, value: Tensor, like_name: str, like: Tensor) -> str:
    # The advice must be valid for arrays too.
    if value.ndim == 1 and like.ndim == 2 and value.shape[0] == like.shape[0]:
        return f": use {name}.reshape(-1, 1)"
    if value.ndim == 2 and like.ndim == 1 and value.shape == (like.shape[0], 1):
        return f": use {name}.reshape(-1)"
    if value.ndim == 0:
        return f": pass one value per element, such as torch.full_like({like_name}, ...)"
    return f": expand {name} to that shape first" if _broadcasts(value, like) else ""


def _broadcasts(value: Tensor, like: Tensor) -> bool:
    try:
        value.expand(like.shape)
    except RuntimeError:
        return False
    return True


def check_elements(name: str, value: Tensor, is_valid: Tensor, expected: str) -> None:
    """Check that all elements are valid; the error shows the first invalid ones."""
    if bool(is_valid.all()):
        return
    bad = (~is_valid).nonzero()
    first = ", ".join(f"{value[tuple(i)].item():g} at {_index(i)}" for i in bad[:BAD_ROWS_SHOWN])
    count = f" ({len(bad)} invalid elements in all)" if len(bad) > BAD_ROWS_SHOWN else ""
    raise ValueError(f"{name} must be {expected}; got {first}{count}{argument_hint(name)}")


def _index(position: Tensor) -> str:
    index = position.tolist()
    return f"index {index[0] if len(index) == 1 else tuple(index)}" if index else "its one element"


def describe(value: object) -> str:
    """Return a short description of an argument for an error."""
    if isinstance(value, Tensor):
        return f"a tensor of dtype {value.dtype} and shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"a numpy.ndarray of dtype {value.dtype} and shape {value.shape}"
    return f"{reprlib.repr(value)} of type {type(value).__name__}"
