"""Checkpoint files, which are written completely or not at all and belong to one training run."""

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
PIECE = 4096  # rows that are hashed at a time
COLUMNS = ("x", "y", "variance", "sample_weight")


def save_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a state to a file. The previous file is kept until the new one is complete.

    Parameters
    ----------
    path : str or pathlib.Path
        Path of the file.
    state : mapping
        Tensors, numbers, text, and lists and dictionaries of these.

    Raises
    ------
    OSError
        If the file cannot be written.

    Notes
    -----
    :func:`load_checkpoint` returns what was saved.

    Examples
    --------
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
    """File that a training run is saved to; the run continues if the disk is full.

    A checkpoint is larger than the trained model, so the disk may have room for the model alone. A
    first checkpoint that fails for another reason, such as a wrong path, raises its error at once.

    Parameters
    ----------
    path : pathlib.Path
        Path of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_new, self._has_warned = not path.exists(), False

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a state; if that fails, warn once and keep the previous file."""
        try:
            save_checkpoint(self.path, state)
        except WriteError as error:
            if self._is_new and error.errno not in NO_SPACE:
                raise
            if not self._has_warned:
                warn(
                    f"{error}. The training continues, but if it is interrupted, everything after "
                    "the last checkpoint is lost"
                )
            self._has_warned = True
        self._is_new = False


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a state that :func:`save_checkpoint` has written.

    Parameters
    ----------
    path : str or pathlib.Path
        Path of the file.

    Returns
    -------
    dict
        State, with its tensors on the CPU.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the file is not a checkpoint, is damaged, or has the format of another version.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "last.checkpoint"
    >>> save_checkpoint(path, {"step": 3})
    >>> load_checkpoint(path)
    {'step': 3}
    """
    content = io.BytesIO(Path(path).read_bytes())
    try:
        with zipfile.ZipFile(content) as file:  # torch writes checksums but does not verify them
            if damaged := file.testzip():
                raise ValueError(f"the checksum of {damaged} does not match")
        content.seek(0)
        state = torch.load(content, map_location="cpu", weights_only=True)
        file_format = state.pop("format", None)
    except Exception as error:  # torch raises errors of many types for invalid files
        raise ValueError(
            f"{path} is not a complete checkpoint: move it away to start again"
        ) from error
    if file_format != FORMAT:
        raise ValueError(
            f"{path} must have the format {FORMAT!r}; got {shortened(file_format)}, from another "
            "version of biv. Move the file away to start again, or finish the training with the "
            "version that wrote it"
        )
    return dict(state)


def fingerprint(
    network: str, parameters: str | None, members: Sequence[Member], schedule: Schedule
) -> dict[str, str]:
    """Return a digest of each part of a training run that its result depends on, except epochs.

    Parameters
    ----------
    network : str
        Layers of the network.
    parameters : str or None
        Digest of the initial parameters.
    members : sequence of Member
        All members.
    schedule : Schedule
        Schedule of all members.
    """
    digests: dict[int, str] = {}  # by tensor, because members may share one

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
    """Return a digest of shapes, dtypes and values, for any device and memory layout."""
    sha256 = hashlib.sha256()
    for tensor in tensors:
        sha256.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        for rows in torch.split(tensor, PIECE) if tensor.ndim else [tensor]:
            flat = rows.detach().cpu().contiguous().view(-1)
            sha256.update(flat.view(torch.uint8).numpy().data)
    return sha256.hexdigest()


def require_same(expected: Mapping[str, str], actual: Mapping[str, str]) -> None:
    """Check that two fingerprints are of the same training run.

    Raises
    ------
    ValueError
        If they differ; the message names the parts that differ.
    """
    names = {**expected, **actual}
    differing = [name for name in names if expected.get(name) != actual.get(name)]
    if differing:
        shown = ", ".join(differing[:DIFFERENCES_SHOWN])
        more = ", ..." if len(differing) > DIFFERENCES_SHOWN else ""
        raise ValueError(f"the state is from another training run, which differs in {shown}{more}")


def require_like(expected: Any, actual: Any, name: str = "the state") -> None:
    """Check that a state has every entry of the state of a new training, with the same types.

    Raises
    ------
    ValueError
        If an entry is missing or has another type; the message names the entry.
    """
    if expected is None:  # an entry that is not set before training
        return
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key, value in expected.items():
            if key not in actual:
                raise ValueError(f"{name} has no entry {key!r}")
            require_like(value, actual[key], f"{name}[{key!r}]")
    elif type(expected) is not type(actual):
        raise ValueError(f"{name} must be {type(expected).__name__}; got {type(actual).__name__}")
    elif isinstance(expected, Tensor) and expected.dtype != actual.dtype:
        raise ValueError(f"{name} must have dtype {expected.dtype}; got {actual.dtype}")


def require_in_schedule(step: int, steps_per_epoch: int, epochs: int) -> None:
    """Check that a state was saved at the end of an epoch, and not after the last one."""
    if step < 0 or step % steps_per_epoch:
        raise ValueError(
            "the state must be from the end of an epoch, a multiple of "
            f"{steps_per_epoch} steps; got step {step}"
        )
    if step > epochs * steps_per_epoch:
        raise ValueError(
            f"the schedule must have at least as many epochs as the state, "
            f"{step // steps_per_epoch}; got {epochs}"
        )


def identity(value: Any) -> Any:
    """Return a description that is the same in every process, and differs if values differ.

    Functions are described by their code and the values it refers to, objects by type and state.
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
        closure = [identity(cell.cell_contents) for cell in cells]
        return [value.__qualname__, code.co_code.hex(), code.co_names, repr(constants), closure]
    name = getattr(value, "__qualname__", None)  # classes and built-in functions have one
    if name is not None:
        return name
    state = {key: part for key, part in vars(value).items() if not key.startswith("_")}
    return [type(value).__qualname__, identity(state)]
