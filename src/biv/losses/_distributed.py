r"""One normaliser over many batches: the ranks of a process group, the micro-batches of a window.

The mean over ranks of local BIV losses is not the BIV loss of the whole batch: each rank would
divide by its own Σ w. Here the sums are taken over all ranks first. On rank r of R

.. math:: L_r = R \, \frac{\sum_{k \in r} w_k \ell_k}{\sum_{\text{all}} w_k},

so that the mean of the :math:`L_r`, and of their gradients as DistributedDataParallel averages
them, is that of the one big batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from biv._utils import validation
from biv._utils.pages import argument_hint
from biv.losses import weights
from biv.losses._reduction import Labels, LossSums, Weighted
from biv.losses._weighting import Scope, Weighting, smallest_of_each

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Item = TypeVar("Item")


class Normaliser(NamedTuple):
    """What every part of the whole divides by, and the scope its weights are taken in."""

    scope: Scope
    denominator: Tensor
    world_size: int

    def loss(self, numerator: Tensor) -> Tensor:
        """The share of one part: over ranks they average, over micro-batches they add up."""
        return LossSums(numerator * self.world_size, self.denominator.to(numerator.dtype)).value()


def normalise(
    weighting: Weighting,
    batches: Sequence[Labels],
    group: ProcessGroup | None,
    *,
    validate_args: bool,
    per_output: bool = False,
) -> tuple[Normaliser, list[Weighted]]:
    """The normaliser of all `batches` on all ranks of `group`, and the batches weighed in it.

    With `per_output` there is one for each output; all batches must have the same outputs.
    """
    with torch.no_grad():
        variance = torch.cat([_variances(labels, per_output) for labels in batches])
        given = [s for s in (labels.largest_importance for labels in batches) if s is not None]
        importance = torch.stack(given).amax() if given else None
        if group is None:
            scope = Scope.over(
                weighting,
                variance,
                importance,
                validate_args=validate_args,
                per_output=per_output,
            )
        else:
            scope = _scope_over_ranks(
                weighting, variance, importance, group, validate_args=validate_args
            )
        weighed = [
            Weighted.of(weighting, labels, scope, per_output=per_output) for labels in batches
        ]
        denominator = torch.stack([batch.denominator for batch in weighed]).sum(dim=0)
        if group is None:
            return Normaliser(scope, denominator, 1), weighed
        denominator = denominator.double()
        dist.all_reduce(denominator, dist.ReduceOp.SUM, group)
        return Normaliser(scope, denominator, dist.get_world_size(group)), weighed


def _variances(labels: Labels, per_output: bool) -> Tensor:
    """Of all elements, flat; or as rows of outputs, (M, D)."""
    variance = labels.promoted()
    return variance.flatten(0, -2) if per_output and variance.ndim > 1 else variance.flatten()


def outputs_of(target: Tensor) -> tuple[int, ...]:
    """(D,) of labels that may have several outputs; () of one output."""
    return tuple(target.shape[-1:]) if target.ndim > 1 else ()


def require_outputs(target: Tensor, expected: Sequence[int]) -> None:
    """Labels with the outputs of the other batches that they share their normalisers with."""
    if outputs_of(target) != tuple(expected):
        raise ValueError(
            "target must have the same last dimension in every micro-batch of a window with "
            f"per_output=True, {expected[0] if expected else 'shape (N,)'}; "
            f"got shape {tuple(target.shape)}"
        )


def _scope_over_ranks(
    weighting: Weighting,
    variance: Tensor,
    importance: Tensor | None,
    group: ProcessGroup,
    *,
    validate_args: bool,
) -> Scope:
    look = validate_args and validation.values_are_readable()
    own = variance.new_ones(()) if importance is None else importance
    least, longest, _, largest = _agree(variance, own, group, failed=False, look=look)
    per_output = variance.ndim == 2
    if weighting.policy.reads_batch:
        everything = _gather(variance.double(), int(longest), group)
    elif per_output:
        everything = smallest_of_each(variance).double().unsqueeze(0)
        dist.all_reduce(everything, dist.ReduceOp.MIN, group)
    else:
        everything = least.reshape(1)  # all that is asked of the variances then
    return Scope.over(
        weighting, everything, largest, validate_args=validate_args, per_output=per_output
    )


def _agree(
    variance: Tensor, importance: Tensor, group: ProcessGroup, *, failed: bool, look: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The smallest variance, the most rows and outputs, and the largest importance: one exchange.

    Also carries whether a rank found its input bad, so that no rank is left waiting for it. There
    are 0 outputs where all elements share one normaliser.
    """
    outputs = variance.shape[1] if variance.ndim == 2 else 0
    numbers = (len(variance), failed, outputs, -outputs)
    facts = torch.stack(
        [
            -weights.smallest_variance(variance).double(),
            *(variance.new_full((), float(number), dtype=torch.float64) for number in numbers),
            importance.double(),
        ]
    )
    dist.all_reduce(facts, dist.ReduceOp.MAX, group)
    if look:
        _require_agreement(group, *facts[2:5].tolist())
    return -facts[0], facts[1], facts[3], facts[5]


def _require_agreement(group: ProcessGroup, failed: float, most: float, fewest: float) -> None:
    """No rank has failed, and all have as many outputs; `fewest` comes with a minus sign."""
    if failed:
        raise RuntimeError(
            "biv: another rank of the process group found its input bad and says how; "
            f"this one, rank {dist.get_rank(group)}, stops with it"
        )
    if most != -fewest:
        raise ValueError(
            "target must have the same last dimension on every rank with per_output=True; "
            f"got {-fewest:g} on one and {most:g} on another (0: a single output)"
        )


def stop_together(
    weighting: Weighting, group: ProcessGroup, device: torch.device, *, validate_args: bool
) -> None:
    """Take this rank's part in what the others are about to exchange, having failed.

    Where values are looked at, the others see that it failed and stop. Where not, they get NaN.
    """
    nothing = torch.empty(0, dtype=torch.float64, device=device)
    _, longest, outputs, _ = _agree(nothing, nothing.new_zeros(()), group, failed=True, look=False)
    if not validate_args:
        nothing = nothing.reshape(0, int(outputs)) if outputs else nothing
        if weighting.policy.reads_batch:
            _gather(nothing, int(longest), group)
        elif nothing.ndim == 2:
            dist.all_reduce(smallest_of_each(nothing), dist.ReduceOp.MIN, group)
        denominator = nothing.new_full(nothing.shape[1:], torch.nan)
        dist.all_reduce(denominator, dist.ReduceOp.SUM, group)


def _gather(variance: Tensor, longest: int, group: ProcessGroup) -> Tensor:
    """Every rank's variances, in the order of the ranks; short rows are filled with +inf, which
    every policy passes over.
    """  # noqa: D205
    row = variance.new_full((longest, *variance.shape[1:]), torch.inf)
    row[: len(variance)] = variance
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, row, group)
    return torch.cat(rows)


def require_group(group: object) -> None:
    """A process group this process belongs to, or None for a local loss."""
    if group is None:
        return
    if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
        _no_group(f"got {validation.describe(group)}")
    if dist.get_rank(group) < 0:
        _no_group("this process is not a member of the group given")


def _no_group(found: str) -> NoReturn:
    raise TypeError(
        "process_group must be None or a torch.distributed.ProcessGroup of which this process is "
        f"a member (torch.distributed.group.WORLD, once initialised); {found}"
        f"{argument_hint('process_group')}"
    )


def accumulation_windows(batches: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Successive lists of `size` batches; the last holds what remains.

    Example:
        >>> list(accumulation_windows(["a", "b", "c", "d", "e"], 2))
        [['a', 'b'], ['c', 'd'], ['e']]
    """
    return _windows(batches, validation.integer("size", size, at_least=1))


def _windows(batches: Iterable[Item], size: int) -> Iterator[list[Item]]:
    window: list[Item] = []
    for batch in batches:
        window.append(batch)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window
