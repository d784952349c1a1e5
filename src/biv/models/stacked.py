"""Many networks of one shape as one: batched matrix products, forward and backward.

Activations are held features first, (members, features, rows): the thin last layers of a small
network then run several times faster than rows first, and a weight is used as ``nn.Linear`` has it.

A member's numbers must not depend on what it is stacked with. Batched products take another way,
and round differently, for a single matrix, and for matrices that begin at addresses of another
alignment. So a block has at least two members, and every matrix begins at a multiple of `ALIGNED`
elements from the start of its buffer.
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
ALIGNED = 16  # elements: a whole cache line of float32


def aligned(elements: int) -> int:
    """The next multiple of `ALIGNED`."""
    return -(-elements // ALIGNED) * ALIGNED


class Stacked:
    """R networks of one shape and dtype: their parameters side by side in one buffer.

    Attributes:
        parameters: (R, P), a row a member, every tensor of it at an aligned offset; the gaps are 0.
        gradients: The same for the gradients of the last ``backward``.
        outputs: Columns of y.

    Args:
        modules: ``nn.Sequential`` s of ``nn.Linear``, ``nn.ReLU`` and
            :class:`~biv.models.PeriodicEmbedding`, at least two. They are copied, not changed.
        dtype: To compute in; that of the modules by default.

    Identity: :meth:`module` gives back every network that was put in.

    Example:
        >>> from biv.models import MLP
        >>> networks = [MLP(features=3)(torch.Generator().manual_seed(seed)) for seed in (0, 1)]
        >>> stacked, x = Stacked(networks), torch.ones(5, 3)
        >>> len(stacked.parameters), torch.equal(stacked.module(1)(x), networks[1](x))
        (2, True)
    """

    def __init__(self, modules: Sequence[nn.Module], dtype: torch.dtype | None = None) -> None:
        if len(modules) < 2:
            raise ValueError(f"a stack has at least two members; got {len(modules)}")
        self._template = _template(modules)
        tensors = list(self._template.parameters())
        offsets = [0]
        for tensor in tensors:
            offsets.append(offsets[-1] + aligned(tensor.numel()))
        kind = tensors[0].dtype if dtype is None else dtype
        self.parameters = torch.zeros(len(modules), offsets[-1], dtype=kind)
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
        self._rooms: dict[tuple[int, int], list[Room]] = {}
        self._blocks: dict[tuple[int, int, int], Block] = {}

    def _views(self, buffer: Tensor) -> Iterator[Tensor]:
        for start, shape in self._shapes:
            yield buffer[:, start : start + shape.numel()].view(len(buffer), *shape)

    def block(self, members: slice, rows: int) -> Block:
        """These members, at least two, on batches of so many rows, a multiple of `ALIGNED`."""
        key = (members.start, members.stop, rows)
        if key not in self._blocks:
            self._blocks[key] = self._new_block(members, rows)
        return self._blocks[key]

    def _new_block(self, members: slice, rows: int) -> Block:
        count = members.stop - members.start
        if count < 2 or rows % ALIGNED:
            raise ValueError(
                f"a block has at least two members and a multiple of {ALIGNED} rows; "
                f"got {count} and {rows}"
            )
        if (count, rows) not in self._rooms:
            like = self.parameters
            self._rooms[count, rows] = [layer.room(like, count, rows) for layer in self.layers]
        return Block(self.layers, members, self._rooms[count, rows])

    def module(self, member: int, parameters: Tensor | None = None) -> nn.Module:
        """One member as an ordinary module, its parameters as they are now or in a copy."""
        module = copy.deepcopy(self._template).to(self.parameters.dtype)
        views = self._views(self.parameters if parameters is None else parameters)
        with torch.no_grad():
            for tensor, view in zip(module.parameters(), views, strict=True):
                tensor.copy_(view[member])
        return module


class Room(SimpleNamespace):
    """What one layer keeps of a batch: buffers used again from batch to batch.

    They are contiguous, which the fast batched products ask of their results.
    """


class Block:
    """Some members of a stack on batches of one shape. Blocks of equal shape share their room."""

    def __init__(self, layers: Sequence[Layer], members: slice, rooms: Sequence[Room]) -> None:
        self.layers = [layer.of(members, room) for layer, room in zip(layers, rooms, strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        """Predictions, (members, outputs, rows), overwritten by the next call.

        Args:
            x: (members, features, rows).
        """
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, gradient: Tensor) -> None:
        """Write what follows from the last forward into `Stacked.gradients`.

        Args:
            gradient: Gradient of the predictions, (members, outputs, rows); may be overwritten.
        """
        first, *rest = self.layers
        for layer in reversed(rest):
            gradient = layer.backward(gradient)
        first.backward(gradient, needs_input=False)


class Layer(ABC):
    """One layer of every member, or of some of them with room for a batch.

    Attributes:
        values: Parameters of the layer, (members, ...) each.
        gradients: Gradients of these.
    """

    outputs: int

    def __init__(self, values: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        self.values, self.gradients = values, gradients

    def of(self, members: slice, room: Room) -> Self:
        """The same for some members, with room to compute in."""
        part = copy.copy(self)
        part.values = [value[members] for value in self.values]
        part.gradients = [gradient[members] for gradient in self.gradients]
        part.prepare(room)
        return part

    @abstractmethod
    def room(self, like: Tensor, members: int, rows: int) -> Room:
        """Buffers in the dtype of `like`."""

    @abstractmethod
    def prepare(self, room: Room) -> None:
        """Take the views that every batch needs."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """(members, inputs, rows) to (members, outputs, rows)."""

    @abstractmethod
    def backward(self, gradient: Tensor, *, needs_input: bool = True) -> Tensor:
        """From the gradient of the output, which is overwritten, to that of the input."""


class Linear(Layer):
    """out = W x + b, and relu of it if asked."""

    def __init__(
        self, values: Sequence[Tensor], gradients: Sequence[Tensor], *, relu: bool
    ) -> None:
        super().__init__(values, gradients)
        self.relu = relu
        _, self.outputs, self.inputs = values[0].shape

    def room(self, like: Tensor, members: int, rows: int) -> Room:  # noqa: D102
        return Room(
            out=like.new_empty(members, self.outputs, rows),
            d_x=like.new_empty(members, self.inputs, rows),
        )

    def prepare(self, room: Room) -> None:  # noqa: D102
        self.weight, bias = self.values
        self.d_weight, d_bias = self.gradients
        self.bias, self.d_bias = bias.unsqueeze(2), d_bias.unsqueeze(2)
        self.weight_transposed = self.weight.transpose(1, 2)
        self.out: Tensor = room.out
        self.d_x: Tensor = room.d_x

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
    """:class:`~biv.models.PeriodicEmbedding` of every member; the first layer, if any."""

    def __init__(
        self, values: Sequence[Tensor], gradients: Sequence[Tensor], module: PeriodicEmbedding
    ) -> None:
        super().__init__(values, gradients)
        self.columns = torch.tensor(module.columns)
        self.others = torch.tensor(module.others, dtype=torch.int64)
        self.outputs = module.outputs

    def room(self, like: Tensor, members: int, rows: int) -> Room:  # noqa: D102
        _, columns, width, waves = self.values[1].shape
        return Room(
            out=like.new_empty(members, self.outputs, rows),
            angle=like.new_empty(members, columns, waves // 2, rows),
            waves=like.new_empty(members, columns, waves, rows),
            d_waves=like.new_empty(members, columns, waves, rows),
            hidden=like.new_empty(members, columns, width, rows),
            d_hidden=like.new_empty(members, columns, width, rows),
            weight=like.new_empty(members, columns, aligned(width * waves)),
        )

    def prepare(self, room: Room) -> None:  # noqa: D102
        self.frequency, self.weight, self.bias = self.values
        self.d_frequency, self.d_weight, self.d_bias = self.gradients
        _, _, width, waves = self.weight.shape
        self.half = waves // 2
        self.out: Tensor = room.out
        self.angle: Tensor = room.angle
        self.waves: Tensor = room.waves
        self.d_waves: Tensor = room.d_waves
        self.hidden: Tensor = room.hidden
        self.d_hidden: Tensor = room.d_hidden
        # The weights again, each matrix at an aligned address of its own.
        packed: Tensor = room.weight.flatten(0, 1)[:, : width * waves]
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
        assert not needs_input  # nothing comes before it
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
    """0 where the output is, in place."""
    torch.ops.aten.threshold_backward.grad_input(gradient, out, 0, grad_input=gradient)


def _template(modules: Sequence[nn.Module]) -> nn.Module:
    """The first of them, which all are like but for the values of their parameters."""
    first = modules[0]
    if not list(first.parameters()) or not all(p.requires_grad for p in first.parameters()):
        raise TypeError(
            f"a network must have parameters, all of them to be trained; got {first}{HELP}"
        )
    for other in modules[1:]:
        if repr(other) != repr(first):
            raise ValueError(
                f"the networks of a stack must be alike; got {first} and {other}{HELP}"
            )
    return first


def can_be_stacked(module: nn.Module) -> bool:
    """Whether networks of this kind are something that :class:`Stacked` computes."""
    try:
        Stacked([module, module])
    except TypeError:
        return False
    return True


def _layers(
    template: nn.Module, values: Iterator[Tensor], gradients: Iterator[Tensor]
) -> Iterator[Layer]:
    """The layers of an ``nn.Sequential``, each over its slice of the buffers."""
    parts = list(template) if isinstance(template, nn.Sequential) else [template]
    before: nn.Module | None = None
    for position, (part, after) in enumerate(zip(parts, [*parts[1:], None], strict=True)):
        count = len(list(part.parameters()))
        own = list(islice(values, count)), list(islice(gradients, count))
        if type(part) is PeriodicEmbedding and position == 0:
            yield PeriodicLayer(*own, part)
        elif type(part) is nn.Linear and part.bias is not None and part not in parts[:position]:
            yield Linear(*own, relu=type(after) is nn.ReLU)
        elif not (type(part) is nn.ReLU and type(before) is nn.Linear):
            raise TypeError(
                "a stack is made of nn.Sequential with nn.Linear, an nn.ReLU after it or not, and "
                f"a PeriodicEmbedding in front or not; got {part!r} at position {position}: "
                f"train_reference takes any module{HELP}"
            )
        before = part
