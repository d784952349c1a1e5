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
from biv.sums import Labels, LossSums, Scope, Weighted, Weighting

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Item = TypeVar("Item")


class Normaliser(NamedTuple):
    """What every part of the whole divides by, and the scope its weights are taken in."""

    scope: Scope
    denominator: Tensor
    copies: int

    def loss(self, numerator: Tensor) -> Tensor:
        """The share of one part: over ranks they average, over micro-batches they add up."""
        return LossSums(numerator * self.copies, self.denominator.to(numerator.dtype)).value()


def normalise(
    weighting: Weighting,
    batches: Sequence[Labels],
    group: ProcessGroup | None,
    *,
    validate_args: bool,
) -> tuple[Normaliser, list[Weighted]]:
    """The normaliser of all `batches` on all ranks of `group`, and the batches weighed in it."""
    with torch.no_grad():
        variance = torch.cat([labels.variance.flatten() for labels in batches])
        if group is None:
            scope = Scope.over(weighting.policy, variance, validate_args=validate_args)
        else:
            scope = _scope_over_ranks(weighting, variance, group, validate_args=validate_args)
        if validate_args and _checks.values_are_readable():
            weighting.check(scope)
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
    least, longest = _agree(variance, group, failed=False, look=validate_args)
    if weighting.policy.reads_batch:
        everything = _gather(variance.double(), int(longest), group)
        scope = Scope.over(weighting.policy, everything, validate_args=validate_args)
        return Scope(torch.as_tensor(scope.epsilon).to(variance), least.to(variance))
    return Scope(weighting.policy.resolve(variance), least.to(variance))


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
    if look and not failed and facts[0].item():
        raise RuntimeError(
            "biv: another rank of the process group found its input bad and says how; "
            f"this one, rank {dist.get_rank(group)}, stops with it"
        )
    return -facts[1], facts[2]


def stop_together(group: ProcessGroup, device: torch.device) -> None:
    """Tell the other ranks, which are about to exchange their sums, that this one has failed."""
    _agree(torch.empty(0, device=device), group, failed=True, look=False)


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
        f"a member (torch.distributed.group.WORLD, once initialised); {found}"
    )


def accumulation_windows(batches: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Successive lists of `size` batches; the last holds what remains.

    Example:
        >>> list(accumulation_windows(["a", "b", "c", "d", "e"], 2))
        [['a', 'b'], ['c', 'd'], ['e']]
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"size must be an integer >= 1; found {_checks.describe(size)}")
    return _windows(batches, size)


def _windows(batches: Iterable[Item], size: int) -> Iterator[list[Item]]:
    window: list[Item] = []
    for batch in batches:
        window.append(batch)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window
