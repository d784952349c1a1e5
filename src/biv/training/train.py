"""Train a stack or a single network to the last epoch, with a progress bar and checkpoints."""

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
from biv.training.compute import DEFAULT_COMPUTE, REFERENCE_COMPUTE, Compute
from biv.training.data import Member
from biv.training.history import History
from biv.training.loop import Loop
from biv.training.schedule import Schedule
from biv.training.stack import Factory, Stack

# Labels whose variance is above this number, or below its inverse, have probably not been scaled.
EXTREME_LABEL_VARIANCE = 100.0


class Trained(NamedTuple):
    """A trained member, as returned by :func:`train_stack`.

    Attributes
    ----------
    module : torch.nn.Module
        Trained network.
    history : History
        Curves of its training.

    Examples
    --------
    >>> import torch
    >>> from biv.models import MLP
    >>> from biv.training import Triplets
    >>> rows = Triplets(torch.zeros(8, 3), torch.zeros(8), torch.ones(8))
    >>> network, history = train_stack(MLP(features=3), [Member(rows)], Schedule(epochs=2))[0]
    >>> history
    History(2 steps)
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
    """Train many small networks at once.

    Training uses one thread, which is fastest for small networks. To use several cores, start one
    process per core and give each process its own stack.

    Parameters
    ----------
    model : callable
        Function that takes a ``torch.Generator`` and returns a new network, such as
        ``biv.models.MLP(features=19)``.
    members : sequence of Member
        Data, loss, learning rate and seed of each network.
    schedule : Schedule
        Epochs, batches, tests and optimizer of all members.
    checkpoint : str or pathlib.Path, default=None
        File that the training is saved to, and resumed from if it exists. It is written at the end
        of an epoch if `checkpoint_seconds` have passed, and on an interruption (Ctrl-C). A resumed
        run may have more epochs; any other difference is an error. Set it if the training
        takes longer than you can afford to repeat.
    checkpoint_seconds : float, default=60.0
        Seconds between two saves. A killed process loses what it did since the last save; decrease
        the number if that is too much.
    progress : bool, default=True
        Whether to show a progress bar on a terminal, after two seconds. Set it to False to keep a
        terminal clean.

    Returns
    -------
    list of Trained
        Network and curves of each member, in the order of `members`.

    Raises
    ------
    TypeError
        If `members` is not a sequence of `Member`, or `model` does not make networks.
    ValueError
        If the shapes or the numbers of steps of the members differ, or `checkpoint` is the
        checkpoint of another training run.

    Notes
    -----
    Each member ends bit for bit as if it had been trained alone. A run that is interrupted and
    resumed ends bit for bit as an uninterrupted one.

    Examples
    --------
    >>> import torch
    >>> from biv import BIVLoss, L2Loss
    >>> from biv.models import MLP
    >>> from biv.training import Triplets
    >>> x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    >>> rows = Triplets(x, x.sum(dim=1), torch.ones(64))
    >>> members = [Member(rows, loss=loss) for loss in (BIVLoss(), L2Loss())]
    >>> with_biv, with_l2 = train_stack(MLP(features=3), members, Schedule(epochs=2, batch_size=16))
    >>> bool((abs(with_biv.history.train_loss - with_l2.history.train_loss) < 1e-5).all())
    True
    """
    validation.real_number("checkpoint_seconds", checkpoint_seconds, validation.NON_NEGATIVE)
    if not isinstance(members, Sequence) or not all(isinstance(m, Member) for m in members):
        raise TypeError(
            f"members must be a list of Member; got {validation.describe(members)}"
            f"{page_hint('networks')}"
        )
    stack = Stack(model, members, schedule)
    _run_to_end(
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
    compute: Compute = DEFAULT_COMPUTE,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool = True,
) -> History:
    """Train any module on the rows of one member, in place.

    Use it for networks that are too large for a stack or have layers that a stack does not support.
    The module ends in evaluation mode, on the device of `compute`. If it has batch normalisation, a
    last batch of a single row is left out. Layers that draw random numbers, such as dropout, use
    torch's global generator; call ``torch.manual_seed`` to make their numbers repeatable.

    Parameters
    ----------
    model : torch.nn.Module
        Network that maps rows of x to predictions of shape (rows, outputs). Images reach it as they
        are stored, as bytes; :class:`biv.models.Standardise` converts them to floats. Training
        starts from its current parameters. Draw them from ``member.generators()[0]`` if they should
        depend on the seed of the member.
    member : Member
        Data, loss, learning rate and seed.
    schedule : Schedule
        Epochs, batches, tests and optimizer.
    compute : Compute, default=Compute()
        Device, micro-batches and precision. Change it if a batch does not fit into memory, or to
        choose the device.
    checkpoint : str or pathlib.Path, default=None
        File that the training is saved to, and resumed from if it exists, as in
        :func:`train_stack`. The parameters of the checkpoint replace those of `model`, and
        ``compute.micro_batch`` may differ. Set it for long runs.
    checkpoint_seconds : float, default=60.0
        Seconds between two saves, each at the end of an epoch. Decrease it to lose less when the
        process is killed.
    progress : bool, default=True
        Whether to show a progress bar on a terminal, after two seconds. Set it to False to keep a
        terminal clean.

    Returns
    -------
    History
        Curves of the training.

    Raises
    ------
    TypeError
        If `model` is not a ``torch.nn.Module``.
    ValueError
        If `checkpoint` is the checkpoint of another training run.

    Warns
    -----
    UserWarning
        If the variance of the labels is above 100 or below 0.01, or if the training diverged.

    Notes
    -----
    On a CPU, with the same number of threads, a run that is interrupted and resumed ends bit for
    bit as an uninterrupted one.

    Examples
    --------
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
    _warn_if_unscaled(member)
    history = _run_loop(loop, checkpoint, checkpoint_seconds, progress=progress)
    if history.diverged_at is not None:
        warn(
            f"training diverged at step {history.diverged_at}: the loss, a parameter or the "
            "optimizer's state is infinite or NaN. Choose a learning_rate below "
            f"{member.learning_rate:g}"
        )
    return history


def _warn_if_unscaled(member: Member) -> None:
    y = member.train.y if member.rows is None else member.train.y[member.rows]
    known = y[y.isfinite()]
    variance = float(known.var()) if len(known) > 1 else 1.0
    typical = 1 / EXTREME_LABEL_VARIANCE <= variance <= EXTREME_LABEL_VARIANCE
    if not typical and variance > 0:
        warn(
            f"the labels have a variance of {variance:g}. Networks learn best from labels of unit "
            "variance, and ε is in the units of the variances. Scale labels and variances with "
            "biv.preprocessing.LabelScaler"
        )


def _run_loop(
    loop: Loop, checkpoint: str | Path | None, seconds: float, *, progress: bool
) -> History:
    title = loop.member.name or "training"
    _run_to_end(loop, loop.schedule, title, checkpoint, seconds, progress=progress)
    loop.average.keep()
    loop.model.eval()
    return loop.history()


def train_reference(
    model: nn.Module, member: Member, schedule: Schedule, *, progress: bool = True
) -> History:
    """Train one network in a plain loop, in place, as a reference for :func:`train_stack`.

    It is :func:`train_module` on the CPU, with torch's optimizer that is not fused (see
    :class:`Compute`), and without checkpoints. The tests compare :func:`train_stack` with it.

    Parameters
    ----------
    model : torch.nn.Module
        Network that maps rows of x to predictions of shape (rows, outputs).
    member : Member
        Data, loss, learning rate and seed.
    schedule : Schedule
        Epochs, batches, tests and optimizer.
    progress : bool, default=True
        Whether to show a progress bar on a terminal, after two seconds. Set it to False to keep a
        terminal clean.

    Returns
    -------
    History
        Curves of the training.

    Raises
    ------
    TypeError
        If `model` is not a ``torch.nn.Module``.

    Examples
    --------
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
    loop = Loop(model, member, schedule, REFERENCE_COMPUTE)
    return _run_loop(loop, None, 0.0, progress=progress)


def _run_to_end(
    training: Stack | Loop,
    schedule: Schedule,
    title: str,
    checkpoint: str | Path | None,
    seconds: float,
    *,
    progress: bool,
) -> None:
    """Train to the last epoch with a progress bar; resume from the checkpoint and write it."""
    file = None if checkpoint is None else CheckpointFile(Path(checkpoint))
    if file is not None:
        resume(training, file)
    saved, state = time.monotonic(), None if file is None else training.state_dict()
    total = schedule.epochs * training.steps_per_epoch
    try:
        with progress_bar(total, title, enabled=progress, done=training.step) as bar:

            def on_step() -> None:
                bar.set_postfix_str(training.summary(), refresh=False)
                bar.update()

            while training.epoch < schedule.epochs and not training.all_frozen:
                if isinstance(training, Loop):
                    training.run_epoch(on_step)
                else:  # a step of a stack takes less time than writing its summary
                    training.run_epoch(bar.update)
                    bar.set_postfix_str(training.summary(), refresh=False)
                if file is not None:
                    state = training.state_dict()
                    if time.monotonic() - saved >= seconds:
                        file.save(state)
                        saved = time.monotonic()
    finally:
        if file is not None and state is not None:  # after an interruption: the last whole epoch
            file.save(state)


def resume(training: Stack | Loop, file: CheckpointFile) -> dict[str, Any] | None:
    """Load a checkpoint into a new training run, or write the first checkpoint if there is none.

    Return the content of the checkpoint, or None if it is from before the first step.

    Raises
    ------
    ValueError
        If the file is not a checkpoint, or is the checkpoint of another training run.
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
            f"{path} is not a complete checkpoint: {error} is missing. Move the file away to start "
            "again"
        ) from error
    except typed_json.FAILURES as error:
        raise ValueError(
            f"{path}: {message_of(error)}. Move the file away to start again"
        ) from error
    return state if training.step else None
