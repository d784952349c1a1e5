"""Checkpoints: written whole or not at all, and of one training only."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from biv.datasets.files import write_atomically
from biv.sums import Base
from biv.training.data import Member, Schedule

FORMAT = "biv checkpoint 1"


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state to a file; until it is complete, the file before it stays."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a state from a file.

    Raises:
        ValueError: The file is not a checkpoint, or not one of this version.
    """
    content = path.read_bytes()
    try:
        state = torch.load(io.BytesIO(content), weights_only=True)
        found = state.pop("format", None)
    except Exception as error:  # torch has many kinds for bytes that it cannot make sense of
        raise ValueError(
            f"{path} is not a complete checkpoint: move it away to start anew"
        ) from error
    if found != FORMAT:
        raise ValueError(f"{path} must be a {FORMAT!r}; found {found!r}")
    return dict(state)


def fingerprint(parameters: Tensor, members: Sequence[Member], schedule: Schedule) -> str:
    """A digest of all that decides a training but its length."""
    digest = hashlib.sha256()
    digest.update(repr(replace(schedule, epochs=0)).encode())
    for tensor in [parameters, *_tensors(members)]:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    for member in members:
        seeds = (member.seed, member.order_seed)
        settings = (member.loss.weighting(), _named(member.loss.base), member.learning_rate, seeds)
        digest.update(repr(settings).encode())
    return digest.hexdigest()


def _named(base: Base) -> str:
    """A name that stays the same from process to process, unlike the repr of a function."""
    name: str = base if isinstance(base, str) else getattr(base, "__qualname__", repr(base))
    return name


def _tensors(members: Sequence[Member]) -> Iterator[Tensor]:
    """The data of all members, what they share once."""
    seen: set[int] = set()
    for rows in (rows for member in members for rows in (member.train, member.test)):
        if rows is not None:
            for tensor in (rows.x, rows.y, rows.variance, rows.sample_weight):
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield tensor
