"""Drives a stack from the first epoch to the last, with a bar and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from biv import _checks
from biv.training.checkpoint import load_checkpoint, save_checkpoint
from biv.training.data import Member, Schedule
from biv.training.history import History
from biv.training.progress import progress_bar
from biv.training.stack import Factory, Stack


class Trained(NamedTuple):
    """A member after its training."""

    module: nn.Module
    history: History


def train_stack(
    model: Factory,
    members: Sequence[Member],
    schedule: Schedule,
    *,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool = True,
) -> list[Trained]:
    """Train all members at once; each ends as it would alone, to the bit.

    One thread is used, which is fastest for small networks: where there are more cores, give each a
    process with a stack of its own.

    Args:
        model: Makes a network from a generator, such as ``biv.models.MLP(features=19)``.
        members: Data, loss, learning rate and seed of each.
        schedule: Epochs, batches, tests and optimiser of all.
        checkpoint: A file to go on from, if it is there, and to save to at the end of an epoch, now
            and then and when interrupted (Ctrl-C); what is resumed ends to the bit as if it had not
            been interrupted. More epochs may be asked for than when it was begun; anything else
            that differs is an error. A kill loses what came after the last save.
        checkpoint_seconds: How often to save.
        progress: Whether to show a bar on a terminal, after two seconds.

    Returns:
        A module and its curves for each member, in the order given.

    Example:
        >>> import torch
        >>> from biv import BIVLoss, L2Loss
        >>> from biv.models import MLP
        >>> from biv.training import Triplets
        >>> x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = Triplets(x, x.sum(dim=1), torch.ones(64))
        >>> members = [Member(rows, loss=loss) for loss in (BIVLoss(), L2Loss())]
        >>> biv, l2 = train_stack(MLP(features=3), members, Schedule(epochs=2, batch_size=16))
        >>> bool((abs(biv.history.train_loss - l2.history.train_loss) < 1e-5).all())
        True
    """
    _checks.real_number("checkpoint_seconds", checkpoint_seconds, _checks.NON_NEGATIVE)
    if not isinstance(members, Sequence) or not all(isinstance(m, Member) for m in members):
        raise TypeError(f"members must be a list of Member; found {_checks.describe(members)}")
    stack = Stack(model, members, schedule)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        resume(stack, path)
    total, what = schedule.epochs * stack.steps_per_epoch, f"{len(members)} members"
    saved, state = time.monotonic(), stack.state_dict()
    try:
        with progress_bar(total, what, enabled=progress, done=stack.step) as bar:
            while stack.epoch < schedule.epochs and not stack.all_frozen:
                stack.run_epoch(bar.update)
                bar.set_postfix_str(stack.summary(), refresh=False)
                if path is not None:
                    state = stack.state_dict()
                    if time.monotonic() - saved >= checkpoint_seconds:
                        save_checkpoint(path, state)
                        saved = time.monotonic()
    finally:
        if path is not None:  # also when interrupted: the last whole epoch
            save_checkpoint(path, state)
    return [Trained(stack.module(r), h) for r, h in enumerate(stack.histories())]


def resume(stack: Stack, path: Path) -> dict[str, Any] | None:
    """Take a new stack to where a checkpoint is; where there is none, see that it can be written.

    Returns what the checkpoint holds, if there is one with steps in it.

    Raises:
        ValueError: The file is no checkpoint, or not one of this training.
    """
    if not path.exists():
        save_checkpoint(path, stack.state_dict())
        return None
    state = load_checkpoint(path)
    try:
        stack.load_state_dict(state)
    except KeyError as error:
        raise ValueError(f"{path} is not a complete checkpoint: it lacks {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}. Move it away to start anew") from error
    return state if stack.step else None
