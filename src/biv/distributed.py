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

from biv import _checks, weights
from biv._pages import see
from biv.sums import Labels, LossSums, Weighted
from biv.weightings import Scope, Weighting

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
) -> tuple[Normaliser, list[Weighted]]:
    """The normaliser of all `batches` on all ranks of `group`, and the batches weighed in it."""
    with torch.no_grad():
        variance = torch.cat([labels.promoted().flatten() for labels in batches])
        if group is None:
            scope = Scope.over(weighting, variance, validate_args=validate_args)
        else:
            scope = _scope_over_ranks(weighting, variance, group, validate_args=validate_args)
        weighed = [Weighted.of(weighting, labels, scope) for labels in batches]
        denominator = torch.stack([batch.denominator for batch in weighed]).sum()
        if group is None:
            return Normaliser(scope, denominator, 1), weighed
        denominator = denominator.double()
        dist.all_reduce(denominator, dist.ReduceOp.SUM, group)
        return Normaliser(scope, denominator, dist.get_world_size(group)), weighed


def _scope_over_ranks(
    weighting: Weighting, variance: Tensor, group: ProcessGroup, *, validate_args: bool
) -> Scope:
    look = validate_args and _checks.values_are_readable()
    least, longest = _agree(variance, group, failed=False, look=look)
    if weighting.policy.reads_batch:
        everything = _gather(variance.double(), int(longest), group)
    else:
        everything = least.reshape(1)  # all that is asked of the variances then
    return Scope.over(weighting, everything, validate_args=validate_args)


def _agree(
    variance: Tensor, group: ProcessGroup, *, failed: bool, look: bool
) -> tuple[Tensor, Tensor]:
    """The smallest variance of all ranks and the longest row of them, in one exchange.

    Also carries whether a rank found its input bad, so that no rank is left waiting for it.
    """
    facts = torch.stack(
        [
            variance.new_full((), float(failed), dtype=torch.float64),
            -weights.smallest(variance).double(),
            variance.new_full((), float(variance.numel()), dtype=torch.float64),
        ]
    )
    dist.all_reduce(facts, dist.ReduceOp.MAX, group)
    if look and facts[0].item():
        raise RuntimeError(
            "biv: another rank of the process group found its input bad and says how; "
            f"this one, rank {dist.get_rank(group)}, stops with it"
        )
    return -facts[1], facts[2]


def stop_together(
    weighting: Weighting, group: ProcessGroup, device: torch.device, *, validate_args: bool
) -> None:
    """Take this rank's part in what the others are about to exchange, having failed.

    Where values are looked at, the others see that it failed and stop. Where not, they get NaN.
    """
    nothing = torch.empty(0, dtype=torch.float64, device=device)
    _, longest = _agree(nothing, group, failed=True, look=False)
    if not validate_args:
        if weighting.policy.reads_batch:
            _gather(nothing, int(longest), group)
        dist.all_reduce(nothing.new_full((), torch.nan), dist.ReduceOp.SUM, group)


def _gather(variance: Tensor, longest: int, group: ProcessGroup) -> Tensor:
    """Every rank's variances, in the order of the ranks; short rows are filled with +inf, which
    every policy passes over.
    """  # noqa: D205
    row = variance.new_full((longest,), torch.inf)
    row[: variance.numel()] = variance
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, row, group)
    return torch.cat(rows)


def require_group(group: object) -> None:
    """A process group this process belongs to, or None for a local loss."""
    if group is None:
        return
    if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
        _no_group(f"found {_checks.describe(group)}")
    if dist.get_rank(group) < 0:
        _no_group("this process is not a member of the group given")


def _no_group(found: str) -> NoReturn:
    raise TypeError(
        "process_group must be None or a torch.distributed.ProcessGroup of which this process is "
        f"a member (torch.distributed.group.WORLD, once initialised); {found}{see('process_group')}"
    )


def accumulation_windows(batches: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Successive lists of `size` batches; the last holds what remains.

    Example:
        >>> list(accumulation_windows(["a", "b", "c", "d", "e"], 2))
        [['a', 'b'], ['c', 'd'], ['e']]
    """
    return _windows(batches, _checks.integer("size", size, at_least=1))


def _windows(batches: Iterable[Item], size: int) -> Iterator[list[Item]]:
    window: list[Item] = []
    for batch in batches:
        window.append(batch)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window
