"""Checks of arguments. Every error names the argument, the value found and the value expected."""

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
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # that torch computes in
LARGEST_INTEGER = 2**32 - 1  # of a setting, and the largest seed of NumPy: more cannot be meant


def values_are_readable() -> bool:
    """Whether Python may look at the values of a tensor here.

    False while compiling and inside `torch.func` transforms, where a branch on a value either
    breaks the graph or has no meaning.
    """
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


class Range(NamedTuple):
    """What a number may be; `limit` is excluded from above unless `closed`."""

    least: float = -math.inf
    open_below: bool = False
    limit: float = math.inf
    closed: bool = False

    def __contains__(self, number: object) -> bool:
        # A NaN fails every comparison, which is what we want of it.
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
    """A real number in its range, as a float; a 0-d tensor of one stays a tensor."""
    if type(value) is float and value in allowed:  # by far the commonest, in every step of a loop
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
            number = value = float(value) + 0.0  # -0.0 would turn the sign of a reciprocal round
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
    # One number of that name is the variance of a noise model, which error bars have no part in.
    return "" if name == "variance" else argument_hint(name)


def _loss_page(name: str) -> str:
    # Which shapes and tensors a loss takes; where error bars come from is not the question.
    return page_hint("loss") if name in PAGE_OF else ""


def integer(name: str, value: object, *, at_least: int, at_most: int = LARGEST_INTEGER) -> int:
    """An integer of any kind, NumPy's too; a truth value is none."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be an integer >= {at_least}; got {describe(value)}")
    if number < at_least:
        raise ValueError(f"{name} must be an integer >= {at_least}; got {_shown(number)}")
    if number > at_most:
        raise ValueError(f"{name} must be an integer of at most {at_most:,}; got {_shown(number)}")
    return number


def _shown(number: int) -> str:
    # Python refuses to write out thousands of digits.
    return str(number) if number.bit_length() < 100 else f"one of {number.bit_length()} bits"


def _constant_scalar(name: str, value: Tensor, allowed: Range) -> None:
    if value.ndim != 0 or not value.is_floating_point():
        raise TypeError(
            f"{name} must be {allowed} or a floating-point tensor of shape (); "
            f"got {describe(value)}"
        )
    check_no_grad(name, value)


def check_one_of(name: str, value: object, allowed: Collection[object], more: str = "") -> None:
    """One of some words or truth values, NumPy's too.

    Args:
        name: Name of the argument.
        value: What it is.
        allowed: What it may be.
        more: What else it may be, for the message.
    """
    try:
        known = value in frozenset(allowed)  # by its hash: arrays and pandas.NA are never "equal"
    except TypeError:  # it has none
        known = False
    if not known:
        names = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {names}{more}; got {shortened(value)}")


def generator(value: object) -> np.random.Generator:
    """A source of randomness of NumPy's; never a seed, never a global one."""
    if not isinstance(value, np.random.Generator):
        raise TypeError(
            "generator must be a numpy.random.Generator, such as numpy.random.default_rng(0); "
            f"got {describe(value)}"
        )
    return value


def floating_tensor(name: str, value: object) -> Tensor:
    """A real floating-point tensor."""
    if not isinstance(value, Tensor):
        fix = f": use torch.as_tensor({name})" if isinstance(value, (np.ndarray, list)) else ""
        raise TypeError(
            f"{name} must be a torch.Tensor; got {describe(value)}{fix}{_loss_page(name)}"
        )
    if value.dtype not in DTYPES:  # 8 bits are a format to store, with hardly any operations
        fix = "" if value.is_complex() else f": use {name}.float()"
        raise TypeError(
            f"{name} must have a floating-point dtype such as torch.float32; got {value.dtype}{fix}"
        )
    return dense_tensor(name, value)


def dense_tensor(name: str, value: Tensor) -> Tensor:
    """A tensor whose elements are all there, in one block."""
    if value.layout != torch.strided or value.is_nested:
        layout = "nested" if value.is_nested else value.layout
        fix = "" if value.is_nested else f": use {name}.to_dense()"
        raise TypeError(f"{name} must be a dense tensor; got layout {layout}{fix}")
    return value


def bool_tensor(name: str, value: object) -> Tensor:
    """A tensor of dtype bool."""
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        raise TypeError(
            f"{name} must be a torch.Tensor of dtype torch.bool, True where an element is used; "
            f"got {describe(value)}{argument_hint(name)}"
        )
    return dense_tensor(name, value)


def check_no_grad(name: str, value: Tensor) -> None:
    """A tensor that no gradient flows to: weights are constants of a loss."""
    if value.requires_grad:
        raise ValueError(
            f"{name} must not require grad: it sets the weights, which are constants of the loss; "
            f"got requires_grad=True: use {name}.detach(){_loss_page(name)}"
        )


def check_same_device(name: str, value: Tensor, like_name: str, like: Tensor) -> None:
    """Two tensors on one device."""
    if value.device != like.device:
        raise ValueError(
            f"{name} must be on the device of {like_name}, {like.device}; got {value.device}"
        )


def check_same_shape(name: str, value: Tensor, like_name: str, like: Tensor) -> None:
    """Two tensors of equal shape; nothing is broadcast."""
    if value.shape != like.shape:
        raise ValueError(
            f"{name} must have the shape of {like_name}, {tuple(like.shape)}; "
            f"got {tuple(value.shape)}{_reshape_hint(name, value, like_name, like)}"
            f"{_loss_page(name)}"
        )


def expanded(name: str, value: Tensor, like_name: str, like: Tensor) -> Tensor:
    """`value` at the shape of `like`: equal already, or (N, 1) beside (N, D)."""
    if value.ndim == like.ndim == 2 and value.shape == (like.shape[0], 1):
        return value.expand(like.shape)
    if value.shape != like.shape:
        one_a_row = f" or ({like.shape[0]}, 1)" if like.ndim == 2 and like.shape[1] != 1 else ""
        raise ValueError(
            f"{name} must have the shape of {like_name}, {tuple(like.shape)}{one_a_row}; "
            f"got {tuple(value.shape)}{_reshape_hint(name, value, like_name, like)}"
            f"{_loss_page(name)}"
        )
    return value


def _reshape_hint(name: str, value: Tensor, like_name: str, like: Tensor) -> str:
    # What is said here must hold for arrays too.
    if value.ndim == 1 and like.ndim == 2 and value.shape[0] == like.shape[0]:
        return f": use {name}.reshape(-1, 1)"
    if value.ndim == 2 and like.ndim == 1 and value.shape == (like.shape[0], 1):
        return f": use {name}.reshape(-1)"
    if value.ndim == 0:
        return f": give one an element, such as torch.full_like({like_name}, ...)"
    return f": expand {name} to that shape first" if _broadcasts(value, like) else ""


def _broadcasts(value: Tensor, like: Tensor) -> bool:
    try:
        value.expand(like.shape)
    except RuntimeError:
        return False
    return True


def check_elements(name: str, value: Tensor, good: Tensor, expected: str) -> None:
    """Every element is `good`; the error shows the first bad ones."""
    if bool(good.all()):
        return
    bad = (~good).nonzero()
    shown = ", ".join(f"{value[tuple(i)].item():g} at {_index(i)}" for i in bad[:BAD_ROWS_SHOWN])
    rest = f" ({len(bad)} bad elements in all)" if len(bad) > BAD_ROWS_SHOWN else ""
    raise ValueError(f"{name} must be {expected}; got {shown}{rest}{argument_hint(name)}")


def _index(position: Tensor) -> str:
    where = position.tolist()
    return f"index {where[0] if len(where) == 1 else tuple(where)}" if where else "its one element"


def describe(value: object) -> str:
    """What an argument is, for a message."""
    if isinstance(value, Tensor):
        return f"a tensor of dtype {value.dtype} and shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"a numpy.ndarray of dtype {value.dtype} and shape {value.shape}"
    return f"{reprlib.repr(value)} of type {type(value).__name__}"
