"""Drives a stack or a single network to the last epoch, with a bar and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from biv._utils import typed_json, validation
from biv._utils.messages import message_of
from biv._utils.pages import page_hint
from biv._utils.progress import progress_bar
from biv._utils.warnings import warn
from biv.training.checkpoint import CheckpointFile, load_checkpoint
from biv.training.compute import HERE, PLAIN, Compute
from biv.training.data import Member
from biv.training.history import History
from biv.training.loop import Loop
from biv.training.schedule import Schedule
from biv.training.stack import Factory, Stack

UNUSUAL = 100.0  # a variance of labels, or one over it, beyond which somebody forgot to scale them


class Trained(NamedTuple):
    """A member after its training, as :func:`train_stack` returns it.

    Attributes:
        module: Trained network.
        history: Curves of the training.
    """

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
        checkpoint: File to resume from, if it exists, and to save to: every `checkpoint_seconds` at
            the end of an epoch, and when interrupted (Ctrl-C). A resumed training ends to the bit
            as if it had not been interrupted. More epochs may be asked for than at the beginning;
            anything else that differs is an error. A kill loses what came after the last save.
        checkpoint_seconds: Seconds between two saves.
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
    validation.real_number("checkpoint_seconds", checkpoint_seconds, validation.NON_NEGATIVE)
    if not isinstance(members, Sequence) or not all(isinstance(m, Member) for m in members):
        raise TypeError(
            f"members must be a list of Member; got {validation.describe(members)}"
            f"{page_hint('networks')}"
        )
    stack = Stack(model, members, schedule)
    _drive(
        stack,
        schedule,
        f"{len(members)} members",
        checkpoint,
        checkpoint_seconds,
        progress=progress,
    )
    return [Trained(stack.module(r), h) for r, h in enumerate(stack.histories())]


def train_module(
    model: nn.Module,
    member: Member,
    schedule: Schedule,
    *,
    compute: Compute = HERE,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool = True,
) -> History:
    """Train any module on one member, in place: what is too large or too special for a stack.

    The module ends in evaluation mode, on the device of `compute`. If it has batch normalisation,
    a last batch of a single row is left out. What draws while it is trained, as dropout does, draws
    from torch's global generator: ``torch.manual_seed`` makes that repeatable.

    Args:
        model: Takes the rows of x, gives (rows, outputs); images are given as they are stored, as
            bytes (:class:`biv.models.Standardise` makes floats of them). Its parameters are taken
            as they are: draw them from ``member.generators()[0]`` to have them depend on the seed.
        member: Data, loss, learning rate, seed.
        schedule: Epochs, batches, tests, optimiser.
        compute: Device, micro-batches, precision.
        checkpoint: As in :func:`train_stack`, but that it brings its own parameters, and that
            micro-batches may differ. On a CPU, with as many threads, what is resumed ends
            to the bit as if it had not been interrupted.
        checkpoint_seconds: Seconds between two saves, at the ends of epochs.
        progress: Whether to show a bar on a terminal, after two seconds.

    Example:
        >>> import torch
        >>> from biv.models import ResNet18
        >>> from biv.training import Triplets
        >>> images = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8)
        >>> member = Member(Triplets(images, torch.randn(8), torch.rand(8)))
        >>> network = ResNet18()(member.generators()[0])
        >>> train_module(network, member, Schedule(epochs=1, batch_size=4)).train_loss.shape
        (2,)
    """
    validation.real_number("checkpoint_seconds", checkpoint_seconds, validation.NON_NEGATIVE)
    loop = Loop(model, member, schedule, compute)
    _warn_of_scale(member)
    history = _looped(loop, checkpoint, checkpoint_seconds, progress=progress)
    if history.diverged_at is not None:
        warn(
            f"training diverged at step {history.diverged_at}: a loss, a parameter or a moment was "
            f"no longer finite. Try a smaller learning_rate than {member.learning_rate:g}"
        )
    return history


def _warn_of_scale(member: Member) -> None:
    y = member.train.y if member.rows is None else member.train.y[member.rows]
    known = y[y.isfinite()]
    spread = float(known.var()) if len(known) > 1 else 1.0
    if not 1 / UNUSUAL <= spread <= UNUSUAL and spread > 0:
        warn(
            f"the labels have a variance of {spread:g}. Networks learn best from labels of unit "
            "variance, and a number given for ε is in the units of the variances: scale both with "
            "biv.preprocessing.LabelScaler"
        )


def _looped(
    loop: Loop, checkpoint: str | Path | None, seconds: float, *, progress: bool
) -> History:
    what = loop.member.name or "training"
    _drive(loop, loop.schedule, what, checkpoint, seconds, progress=progress)
    loop.average.keep()
    loop.model.eval()
    return loop.history()


def train_reference(
    model: nn.Module, member: Member, schedule: Schedule, *, progress: bool = True
) -> History:
    """The readable reference: :func:`train_module` with torch's plainest optimiser.

    It is what :func:`train_stack` does to forty networks at once.

    Example:
        >>> import torch
        >>> from biv.models import MLP
        >>> from biv.training import Triplets
        >>> x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
        >>> member = Member(Triplets(x, x.sum(dim=1), torch.ones(64)))
        >>> network = MLP(features=3)(member.generators()[0])
        >>> history = train_reference(network, member, Schedule(epochs=2, batch_size=16))
        >>> history.train_loss.shape
        (8,)
    """
    return _looped(Loop(model, member, schedule, PLAIN), None, 0.0, progress=progress)


def _drive(
    training: Stack | Loop,
    schedule: Schedule,
    what: str,
    checkpoint: str | Path | None,
    seconds: float,
    *,
    progress: bool,
) -> None:
    """To the last epoch, with a bar, from a checkpoint and to it."""
    file = None if checkpoint is None else CheckpointFile(Path(checkpoint))
    if file is not None:
        resume(training, file)
    saved, state = time.monotonic(), None if file is None else training.state_dict()
    total = schedule.epochs * training.steps_per_epoch
    try:
        with progress_bar(total, what, enabled=progress, done=training.step) as bar:

            def show() -> None:
                bar.set_postfix_str(training.summary(), refresh=False)
                bar.update()

            while training.epoch < schedule.epochs and not training.all_frozen:
                if isinstance(training, Loop):
                    training.run_epoch(show)
                else:  # whose steps are shorter than it takes to describe them
                    training.run_epoch(bar.update)
                    bar.set_postfix_str(training.summary(), refresh=False)
                if file is not None:
                    state = training.state_dict()
                    if time.monotonic() - saved >= seconds:
                        file.save(state)
                        saved = time.monotonic()
    finally:
        if file is not None and state is not None:  # also when interrupted: the last whole epoch
            file.save(state)


def resume(training: Stack | Loop, file: CheckpointFile) -> dict[str, Any] | None:
    """Take a new training to where a checkpoint is; if there is none, see that it can be written.

    Returns what the checkpoint holds, if there is one with steps in it.

    Raises:
        ValueError: The file is no checkpoint, or not one of this training.
    """
    path = file.path
    if not path.exists():
        file.save(training.state_dict())
        return None
    state = load_checkpoint(path)
    try:
        training.load_state_dict(state)
    except KeyError as error:
        raise ValueError(
            f"{path} is not a complete checkpoint: it lacks {error}. Move it away to start anew"
        ) from error
    except typed_json.FAILURES as error:
        said = message_of(error)
        raise ValueError(f"{path}: {said}. Move it away to start anew") from error
    return state if training.step else None
