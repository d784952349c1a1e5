"""Many networks of one shape computed as one, by batched matrix products, forward and backward.

Activations have the shape (members, features, rows). With features first, the thin last layers of a
small network run several times faster than with rows first, and weights keep the layout of
``nn.Linear``.

A member's numbers must not depend on the other members of its stack. Batched products use another
kernel, which rounds differently, for a single matrix, and for matrices at addresses of another
alignment. Therefore a block has at least two members, and every matrix begins at a multiple of
`ALIGNED` elements from the start of its buffer.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from biv._utils.pages import page_hint
from biv.models.embeddings import PeriodicEmbedding

if TYPE_CHECKING:
    from typing_extensions import Self

HELP = page_hint("networks")
ALIGNED = 16  # elements; a whole cache line of float32


def aligned(elements: int) -> int:
    """Return the next multiple of `ALIGNED`."""
    return -(-elements // ALIGNED) * ALIGNED


class Stacked:
    """Stack of R networks of one shape and dtype, with all parameters in one buffer.

    Parameters
    ----------
    modules : sequence of nn.Module
        At least two networks that differ only in the values of their parameters. Each is an
        ``nn.Sequential`` of ``nn.Linear``, ``nn.ReLU`` and, as its first layer or not at all, a
        :class:`~biv.models.PeriodicEmbedding`. They are copied, not changed.
    dtype : torch.dtype or None, default=None
        Dtype to compute in; None means that of the modules. Pass ``torch.float64`` to check
        results.

    Attributes
    ----------
    parameters : Tensor
        Parameters of shape (R, P): one row of P numbers per member. Every parameter tensor begins
        at an aligned offset; the gaps are 0.
    gradients : Tensor
        Gradients of the last ``backward``, in the layout of `parameters`.
    outputs : int
        Number of columns of y.

    Raises
    ------
    TypeError
        A network has a layer that cannot be stacked, or a parameter that is not trained.
    ValueError
        There are fewer than two networks, or they differ in shape.

    Notes
    -----
    :meth:`module` returns a copy of any network that was stacked.

    Examples
    --------
    >>> import torch
    >>> from biv.models import MLP, Stacked
    >>> networks = [MLP(features=3)(torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    >>> stacked, x = Stacked(networks), torch.ones(5, 3)
    >>> len(stacked.parameters), torch.equal(stacked.module(1)(x), networks[1](x))
    (2, True)
    """

    def __init__(self, modules: Sequence[nn.Module], dtype: torch.dtype | None = None) -> None:
        if len(modules) < 2:
            raise ValueError(f"a stack must have at least two members; got {len(modules)}")
        self._template = _template(modules)
        tensors = list(self._template.parameters())
        offsets = [0]
        for tensor in tensors:
            offsets.append(offsets[-1] + aligned(tensor.numel()))
        dtype = tensors[0].dtype if dtype is None else dtype
        self.parameters = torch.zeros(len(modules), offsets[-1], dtype=dtype)
        self.gradients = torch.zeros_like(self.parameters)
        self._shapes = [
            (start, tensor.shape) for start, tensor in zip(offsets, tensors, strict=False)
        ]
        for member, module in enumerate(modules):
            for view, tensor in zip(self._views(self.parameters), module.parameters(), strict=True):
                view[member].copy_(tensor.detach())
        values, gradients = self._views(self.parameters), self._views(self.gradients)
        self.layers = list(_layers(self._template, values, gradients))
        self.outputs = self.layers[-1].outputs
        self._buffers: dict[tuple[int, int], list[Buffers]] = {}
        self._blocks: dict[tuple[int, int, int], Block] = {}

    def _views(self, buffer: Tensor) -> Iterator[Tensor]:
        for start, shape in self._shapes:
            yield buffer[:, start : start + shape.numel()].view(len(buffer), *shape)

    def block(self, members: slice, rows: int) -> Block:
        """Return a block of members for batches of a number of rows.

        Parameters
        ----------
        members : slice
            Members to compute, at least two.
        rows : int
            Number of rows per batch, a multiple of `ALIGNED` = 16.

        Returns
        -------
        Block
            The block, which is cached.
        """
        key = (members.start, members.stop, rows)
        if key not in self._blocks:
            self._blocks[key] = self._new_block(members, rows)
        return self._blocks[key]

    def _new_block(self, members: slice, rows: int) -> Block:
        count = members.stop - members.start
        if count < 2 or rows % ALIGNED:
            raise ValueError(
                f"a block must have at least two members and a multiple of {ALIGNED} rows; "
                f"got {count} and {rows}"
            )
        if (count, rows) not in self._buffers:
            like = self.parameters
            self._buffers[count, rows] = [
                layer.new_buffers(like, count, rows) for layer in self.layers
            ]
        return Block(self.layers, members, self._buffers[count, rows])

    def module(self, member: int, parameters: Tensor | None = None) -> nn.Module:
        """Return one member as an ordinary module.

        Parameters
        ----------
        member : int
            Index of the member.
        parameters : Tensor of shape (R, P) or None, default=None
            Values in the layout of the attribute `parameters`; None means the present ones. Pass a
            copy that was kept earlier, such as that of the best epoch.

        Returns
        -------
        nn.Module
            A new module with a copy of the values.
        """
        module = copy.deepcopy(self._template).to(self.parameters.dtype)
        views = self._views(self.parameters if parameters is None else parameters)
        with torch.no_grad():
            for tensor, view in zip(module.parameters(), views, strict=True):
                tensor.copy_(view[member])
        return module


class Buffers(SimpleNamespace):
    """Buffers of one layer, used again for every batch.

    They are contiguous, which the fast batched products require of their results.
    """


class Block:
    """Some members of a stack, for batches of one shape.

    Blocks of equal shape share their buffers.
    """

    def __init__(self, layers: Sequence[Layer], members: slice, buffers: Sequence[Buffers]) -> None:
        pairs = zip(layers, buffers, strict=True)
        self.layers = [layer.for_members(members, part) for layer, part in pairs]

    def forward(self, x: Tensor) -> Tensor:
        """Return predictions of shape (members, outputs, rows); the next call overwrites them.

        `x` has shape (members, features, rows).
        """
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, gradient: Tensor) -> None:
        """Write the gradients of the last forward pass into `Stacked.gradients`.

        `gradient` is that of the predictions, (members, outputs, rows). It may be overwritten.
        """
        first, *rest = self.layers
        for layer in reversed(rest):
            gradient = layer.backward(gradient)
        first.backward(gradient, needs_input=False)


class Layer(ABC):
    """One layer of every member, or of some members with buffers for a batch.

    Attributes
    ----------
    values : list of Tensor
        Parameters of the layer, each of shape (members, ...).
    gradients : list of Tensor
        Gradients of these.
    """

    outputs: int

    def __init__(self, values: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        self.values, self.gradients = values, gradients

    def for_members(self, members: slice, buffers: Buffers) -> Self:
        """Return the layer of some members, with buffers to compute in."""
        part = copy.copy(self)
        part.values = [value[members] for value in self.values]
        part.gradients = [gradient[members] for gradient in self.gradients]
        part.prepare(buffers)
        return part

    @abstractmethod
    def new_buffers(self, like: Tensor, members: int, rows: int) -> Buffers:
        """Return new buffers in the dtype of `like`."""

    @abstractmethod
    def prepare(self, buffers: Buffers) -> None:
        """Store the buffers, and the views that every batch needs."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Map (members, inputs, rows) to (members, outputs, rows)."""

    @abstractmethod
    def backward(self, gradient: Tensor, *, needs_input: bool = True) -> Tensor:
        """Return the gradient of the input; that of the output, `gradient`, is overwritten."""


class Linear(Layer):
    """Layer W x + b, followed by a ReLU if `relu` is True."""

    def __init__(
        self, values: Sequence[Tensor], gradients: Sequence[Tensor], *, relu: bool
    ) -> None:
        super().__init__(values, gradients)
        self.relu = relu
        _, self.outputs, self.inputs = values[0].shape

    def new_buffers(self, like: Tensor, members: int, rows: int) -> Buffers:  # noqa: D102
        return Buffers(
            out=like.new_empty(members, self.outputs, rows),
            d_x=like.new_empty(members, self.inputs, rows),
        )

    def prepare(self, buffers: Buffers) -> None:  # noqa: D102
        self.weight, bias = self.values
        self.d_weight, d_bias = self.gradients
        self.bias, self.d_bias = bias.unsqueeze(2), d_bias.unsqueeze(2)
        self.weight_transposed = self.weight.transpose(1, 2)
        self.out: Tensor = buffers.out
        self.d_x: Tensor = buffers.d_x

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        self.x = x
        torch.baddbmm(self.bias, self.weight, x, out=self.out)
        return self.out.relu_() if self.relu else self.out

    def backward(self, gradient: Tensor, *, needs_input: bool = True) -> Tensor:  # noqa: D102
        if self.relu:
            _relu_backward(gradient, self.out)
        torch.bmm(gradient, self.x.transpose(1, 2), out=self.d_weight)
        torch.sum(gradient, dim=2, keepdim=True, out=self.d_bias)
        if not needs_input:
            return gradient
        return torch.bmm(self.weight_transposed, gradient, out=self.d_x)


class PeriodicLayer(Layer):
    """:class:`~biv.models.PeriodicEmbedding` of every member, which can only be the first layer."""

    def __init__(
        self, values: Sequence[Tensor], gradients: Sequence[Tensor], module: PeriodicEmbedding
    ) -> None:
        super().__init__(values, gradients)
        self.columns = torch.tensor(module.columns)
        self.others = torch.tensor(module.others, dtype=torch.int64)
        self.outputs = module.outputs

    def new_buffers(self, like: Tensor, members: int, rows: int) -> Buffers:  # noqa: D102
        _, columns, width, waves = self.values[1].shape
        return Buffers(
            out=like.new_empty(members, self.outputs, rows),
            angle=like.new_empty(members, columns, waves // 2, rows),
            waves=like.new_empty(members, columns, waves, rows),
            d_waves=like.new_empty(members, columns, waves, rows),
            hidden=like.new_empty(members, columns, width, rows),
            d_hidden=like.new_empty(members, columns, width, rows),
            weight=like.new_empty(members, columns, aligned(width * waves)),
        )

    def prepare(self, buffers: Buffers) -> None:  # noqa: D102
        self.frequency, self.weight, self.bias = self.values
        self.d_frequency, self.d_weight, self.d_bias = self.gradients
        _, _, width, waves = self.weight.shape
        self.half = waves // 2
        self.out: Tensor = buffers.out
        self.angle: Tensor = buffers.angle
        self.waves: Tensor = buffers.waves
        self.d_waves: Tensor = buffers.d_waves
        self.hidden: Tensor = buffers.hidden
        self.d_hidden: Tensor = buffers.d_hidden
        # A copy of the weights in which every matrix begins at an aligned address.
        packed: Tensor = buffers.weight.flatten(0, 1)[:, : width * waves]
        self.packed = packed.view(-1, width, waves)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        self.numeric = x.index_select(1, self.columns).unsqueeze(2)
        torch.mul(self.numeric, self.frequency.unsqueeze(3) * (2 * math.pi), out=self.angle)
        torch.cos(self.angle, out=self.waves[:, :, : self.half])
        torch.sin(self.angle, out=self.waves[:, :, self.half :])
        self.packed.copy_(self.weight.flatten(0, 1))
        bias = self.bias.flatten(0, 1).unsqueeze(2)
        hidden = self.hidden.flatten(0, 1)
        torch.baddbmm(bias, self.packed, self.waves.flatten(0, 1), out=hidden).relu_()
        count = len(self.others)
        if count:
            self.out[:, :count] = x.index_select(1, self.others)
        self.out[:, count:] = self.hidden.flatten(1, 2)
        return self.out

    def backward(self, gradient: Tensor, *, needs_input: bool = True) -> Tensor:  # noqa: D102
        assert not needs_input  # no layer comes before it
        embedded = gradient[:, len(self.others) :]
        self.d_hidden.copy_(embedded.view(self.hidden.shape))
        _relu_backward(self.d_hidden, self.hidden)
        torch.sum(self.d_hidden, dim=3, out=self.d_bias)
        flat = self.d_hidden.flatten(0, 1)
        torch.bmm(self.packed.transpose(1, 2), flat, out=self.d_waves.flatten(0, 1))
        d_weight = torch.bmm(flat, self.waves.flatten(0, 1).transpose(1, 2))
        self.d_weight.copy_(d_weight.view_as(self.d_weight))
        torch.mul(self.waves[:, :, : self.half], self.d_waves[:, :, self.half :], out=self.angle)
        self.angle.addcmul_(
            self.waves[:, :, self.half :], self.d_waves[:, :, : self.half], value=-1
        )
        self.d_frequency.copy_(self.angle.mul_(self.numeric).sum(3).mul_(2 * math.pi))
        return gradient


def _relu_backward(gradient: Tensor, out: Tensor) -> None:
    """Set the gradient to 0, in place, where the output is 0."""
    torch.ops.aten.threshold_backward.grad_input(gradient, out, 0, grad_input=gradient)


def _template(modules: Sequence[nn.Module]) -> nn.Module:
    """Return the first network, after checking that all differ only in parameter values."""
    first = modules[0]
    if not list(first.parameters()) or not all(p.requires_grad for p in first.parameters()):
        raise TypeError(
            f"a network must have parameters, and all of them must be trained; got {first}{HELP}"
        )
    for other in modules[1:]:
        if repr(other) != repr(first):
            raise ValueError(
                f"the networks of a stack must have the same layers; got {first} and {other}{HELP}"
            )
    return first


def can_be_stacked(module: nn.Module) -> bool:
    """Return whether :class:`Stacked` accepts networks like this one."""
    try:
        Stacked([module, module])
    except TypeError:
        return False
    return True


def _layers(
    template: nn.Module, values: Iterator[Tensor], gradients: Iterator[Tensor]
) -> Iterator[Layer]:
    """Yield the layers of an ``nn.Sequential``, each with its part of the buffers."""
    parts = list(template) if isinstance(template, nn.Sequential) else [template]
    before: nn.Module | None = None
    for position, (part, after) in enumerate(zip(parts, [*parts[1:], None], strict=True)):
        count = len(list(part.parameters()))
        tensors = list(islice(values, count)), list(islice(gradients, count))
        if type(part) is PeriodicEmbedding and position == 0:
            yield PeriodicLayer(*tensors, part)
        elif type(part) is nn.Linear and part.bias is not None and part not in parts[:position]:
            yield Linear(*tensors, relu=type(after) is nn.ReLU)
        elif not (type(part) is nn.ReLU and type(before) is nn.Linear):
            raise TypeError(
                "the networks of a stack must be nn.Sequential of nn.Linear, each with a bias and "
                "with or without an nn.ReLU after it, and optionally a PeriodicEmbedding as the "
                f"first layer; got {part!r} at position {position}: use train_reference, which "
                f"accepts any module{HELP}"
            )
        before = part
