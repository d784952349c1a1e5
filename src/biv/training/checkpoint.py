"""Checkpoints: written whole or not at all, and of one training only."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from biv._utils.atomic_files import NO_SPACE, WriteError, write_atomically
from biv._utils.messages import shortened
from biv._utils.warnings import warn
from biv.training.data import Member, Triplets
from biv.training.schedule import Schedule

FORMAT = "biv checkpoint 2"
DIFFERENCES_SHOWN = 4
PIECE = 4096  # rows that are digested at a time
COLUMNS = ("x", "y", "variance", "sample_weight")


def save_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a state to a file; until it is complete, the file before it stays.

    Args:
        path: Path of the file.
        state: Tensors, numbers, text, and lists and dictionaries of them.

    Identity: :func:`load_checkpoint` gives back what was saved.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "last.checkpoint"
        >>> save_checkpoint(path, {"step": 3, "weights": torch.ones(2)})
        >>> load_checkpoint(path)
        {'step': 3, 'weights': tensor([1., 1.])}
    """
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    write_atomically(Path(path), buffer.getvalue())


class CheckpointFile:
    """File that a training is saved to; training continues if a checkpoint cannot be written.

    A checkpoint is larger than the model that comes of it, so that there may be room for the model
    alone. The first checkpoint must be possible otherwise: a wrong path is an error at once.

    Args:
        path: Path of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_new, self._has_warned = not path.exists(), False

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a state; where that is impossible, warn once, and keep the file of before."""
        try:
            save_checkpoint(self.path, state)
        except WriteError as error:
            if self._is_new and error.errno not in NO_SPACE:
                raise
            if not self._has_warned:
                warn(
                    f"{error}; the training continues, but if it is interrupted, what came after "
                    "the last checkpoint is lost"
                )
            self._has_warned = True
        self._is_new = False


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a state from a file; see :func:`save_checkpoint`. Its tensors are on the CPU.

    Raises:
        ValueError: The file is not a checkpoint, or not one of this version.
    """
    content = io.BytesIO(Path(path).read_bytes())
    try:
        with zipfile.ZipFile(content) as file:  # torch writes checksums, but does not verify them
            if damaged := file.testzip():
                raise ValueError(f"the checksum of {damaged} does not match")
        content.seek(0)
        state = torch.load(content, map_location="cpu", weights_only=True)
        found = state.pop("format", None)
    except Exception as error:  # torch has many kinds for bytes that it cannot make sense of
        raise ValueError(
            f"{path} is not a complete checkpoint: move it away to start anew"
        ) from error
    if found != FORMAT:
        raise ValueError(
            f"{path} must be a {FORMAT!r}; got {shortened(found)}: it is of another version of "
            "biv. Start again: move it away, or finish with the version that wrote it"
        )
    return dict(state)


def fingerprint(
    network: str, parameters: str | None, members: Sequence[Member], schedule: Schedule
) -> dict[str, str]:
    """What decides a training but its length, part by part, each as a short digest.

    Args:
        network: Layers of the network.
        parameters: A digest of those it begins with.
        members: All of them.
        schedule: Schedule of all members.
    """
    digests: dict[int, str] = {}  # of each tensor once, however many members share it

    def content(tensor: Tensor | None) -> str | None:
        if tensor is None:
            return None
        if id(tensor) not in digests:
            digests[id(tensor)] = digest(tensor)
        return digests[id(tensor)]

    def rows(triplets: Triplets | None) -> list[str | None]:
        return [] if triplets is None else [content(getattr(triplets, name)) for name in COLUMNS]

    parts: dict[str, Any] = {
        "the schedule": repr(replace(schedule, epochs=0)),
        "the network": network,
        "the number of members": len(members),
        "the first parameters": parameters,
    }
    for number, member in enumerate(members):
        loss = member.loss
        parts |= {
            f"the loss of member {number}": (
                type(loss).__qualname__, identity(loss.weighting()), identity(loss.base)
            ),
            f"the learning rate of member {number}": member.learning_rate,
            f"the seeds of member {number}": member.seeds,
            f"the training rows of member {number}": [*rows(member.train), content(member.rows)],
            f"the test rows of member {number}": rows(member.test),
        }  # fmt: skip
    return {
        name: hashlib.sha256(repr(part).encode()).hexdigest()[:16] for name, part in parts.items()
    }


def digest(*tensors: Tensor) -> str:
    """Of shapes, dtypes and values, wherever they are and however they are laid out."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        for rows in torch.split(tensor, PIECE) if tensor.ndim else [tensor]:
            flat = rows.detach().cpu().contiguous().view(-1)
            found.update(flat.view(torch.uint8).numpy().data)
    return found.hexdigest()


def require_same(own: Mapping[str, str], other: Mapping[str, str]) -> None:
    """Two fingerprints of one training.

    Raises:
        ValueError: They differ; the message says in what.
    """
    differing = [name for name in {**own, **other} if own.get(name) != other.get(name)]
    if differing:
        shown = ", ".join(differing[:DIFFERENCES_SHOWN])
        more = ", ..." if len(differing) > DIFFERENCES_SHOWN else ""
        raise ValueError(f"the state is of another training, which differs in {shown}{more}")


def require_like(own: Any, other: Any, name: str = "the state") -> None:
    """Check that a state has all that a new training has, of the same types.

    Raises:
        ValueError: Something is missing or of another type; the message says where.
    """
    if own is None:  # as yet
        return
    if isinstance(own, Mapping) and isinstance(other, Mapping):
        for key, value in own.items():
            if key not in other:
                raise ValueError(f"{name} lacks {key!r}")
            require_like(value, other[key], f"{name}[{key!r}]")
    elif type(own) is not type(other):
        raise ValueError(f"{name} must be {type(own).__name__}; got {type(other).__name__}")
    elif isinstance(own, Tensor) and own.dtype != other.dtype:
        raise ValueError(f"{name} must be of {own.dtype}; got {other.dtype}")


def require_room(step: int, steps_per_epoch: int, epochs: int) -> None:
    """A state that is not beyond the end of the schedule, and after a whole epoch."""
    if step < 0 or step % steps_per_epoch:
        raise ValueError(
            f"the state must be of whole epochs of {steps_per_epoch} steps; got {step}"
        )
    if step > epochs * steps_per_epoch:
        raise ValueError(
            f"the state is of {step // steps_per_epoch} epochs, more than the {epochs} that are "
            "scheduled"
        )


def identity(value: Any) -> Any:
    """A description that is the same in another process, and differs where values differ.

    Functions are told apart by their code and what it refers to, objects by their type and state.
    """
    if value is None or isinstance(value, (str, int, float, bool, bytes)):
        return value
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [identity(part) for part in value]
    if isinstance(value, Mapping):
        return [(key, identity(part)) for key, part in value.items()]
    if isinstance(value, partial):
        return [identity(value.func), identity(value.args), identity(value.keywords)]
    if isinstance(value, FunctionType):
        code, cells = value.__code__, value.__closure__ or ()
        constants = [c for c in code.co_consts if not isinstance(c, CodeType)]
        held = [identity(cell.cell_contents) for cell in cells]
        return [value.__qualname__, code.co_code.hex(), code.co_names, repr(constants), held]
    name = getattr(value, "__qualname__", None)  # of a class or a built-in function
    if name is not None:
        return name
    state = {key: part for key, part in vars(value).items() if not key.startswith("_")}
    return [type(value).__qualname__, identity(state)]
