r"""A common normaliser for the ranks of a process group, or for the micro-batches of a window.

The mean over ranks of local BIV losses is not the BIV loss of the whole batch, because each rank
would divide by its own Σ w. Here the denominator is summed over all ranks first. The loss of rank r
of R ranks is

.. math:: L_r = R \, \frac{\sum_{k \in r} w_k \ell_k}{\sum_{\text{all}} w_k}.

The mean of the :math:`L_r` is the loss of the whole batch. DistributedDataParallel averages the
gradients of the ranks, which gives the gradient of that loss.
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
from biv.losses._weighting import Scope, Weighting, smallest_per_output

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Item = TypeVar("Item")


class Normaliser(NamedTuple):
    """Common denominator of several batches, and the scope of their weights."""

    scope: Scope
    denominator: Tensor
    world_size: int

    def loss(self, numerator: Tensor) -> Tensor:
        """Return the loss of one part; average it over ranks, or add it over micro-batches."""
        return LossSums(numerator * self.world_size, self.denominator.to(numerator.dtype)).value()


def normalise(
    weighting: Weighting,
    batches: Sequence[Labels],
    group: ProcessGroup | None,
    *,
    validate_args: bool,
    per_output: bool = False,
) -> tuple[Normaliser, list[Weighted]]:
    """Return the normaliser of the batches of all ranks of `group`, and the weights of `batches`.

    With `per_output`, each output has its own normaliser, and all batches must have the same
    number of outputs.
    """
    with torch.no_grad():
        variance = torch.cat([_variances(labels, per_output) for labels in batches])
        per_batch = [labels.largest_sample_weight for labels in batches]
        known = [s for s in per_batch if s is not None]
        largest_weight = torch.stack(known).amax() if known else None
        if group is None:
            scope = Scope.over(
                weighting,
                variance,
                largest_weight,
                validate_args=validate_args,
                per_output=per_output,
            )
        else:
            scope = _scope_over_ranks(
                weighting, variance, largest_weight, group, validate_args=validate_args
            )
        weighted = [
            Weighted.from_labels(weighting, labels, scope, per_output=per_output)
            for labels in batches
        ]
        denominator = torch.stack([batch.denominator for batch in weighted]).sum(dim=0)
        if group is None:
            return Normaliser(scope, denominator, 1), weighted
        denominator = denominator.double()
        dist.all_reduce(denominator, dist.ReduceOp.SUM, group)
        return Normaliser(scope, denominator, dist.get_world_size(group)), weighted


def _variances(labels: Labels, per_output: bool) -> Tensor:
    """Return the variances of all elements, flat or as rows of outputs of shape (M, D)."""
    variance = labels.promoted_variance()
    return variance.flatten(0, -2) if per_output and variance.ndim > 1 else variance.flatten()


def output_shape(target: Tensor) -> tuple[int, ...]:
    """Return (D,) for labels with two or more dimensions, otherwise ()."""
    return tuple(target.shape[-1:]) if target.ndim > 1 else ()


def check_outputs(target: Tensor, expected: Sequence[int]) -> None:
    """Check that labels have as many outputs as the other batches of the window."""
    if output_shape(target) != tuple(expected):
        raise ValueError(
            "target must have the same last dimension in every micro-batch of a window with "
            f"per_output=True, {expected[0] if expected else 'shape (N,)'}; "
            f"got shape {tuple(target.shape)}"
        )


def _scope_over_ranks(
    weighting: Weighting,
    variance: Tensor,
    largest_weight: Tensor | None,
    group: ProcessGroup,
    *,
    validate_args: bool,
) -> Scope:
    check_values = validate_args and validation.values_are_readable()
    local_largest = variance.new_ones(()) if largest_weight is None else largest_weight
    smallest, most_rows, _, largest = _exchange_summary(
        variance, local_largest, group, failed=False, check_ranks=check_values
    )
    per_output = variance.ndim == 2
    if weighting.policy.reads_batch:
        all_variances = _gather(variance.double(), int(most_rows), group)
    elif per_output:
        all_variances = smallest_per_output(variance).double().unsqueeze(0)
        dist.all_reduce(all_variances, dist.ReduceOp.MIN, group)
    else:
        all_variances = smallest.reshape(1)  # the scope only needs the smallest one
    return Scope.over(
        weighting, all_variances, largest, validate_args=validate_args, per_output=per_output
    )


def _exchange_summary(
    variance: Tensor,
    largest_weight: Tensor,
    group: ProcessGroup,
    *,
    failed: bool,
    check_ranks: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Exchange the facts that all ranks need, in one operation.

    Returns the smallest variance, the largest number of rows, the largest number of outputs (0 if
    all elements share one normaliser) and the largest sample weight. The exchange also carries
    whether a rank has failed, so that no rank waits for it.
    """
    outputs = variance.shape[1] if variance.ndim == 2 else 0
    numbers = (len(variance), failed, outputs, -outputs)
    facts = torch.stack(
        [
            -weights.smallest_variance(variance).double(),
            *(variance.new_full((), float(number), dtype=torch.float64) for number in numbers),
            largest_weight.double(),
        ]
    )
    dist.all_reduce(facts, dist.ReduceOp.MAX, group)
    if check_ranks:
        _check_ranks(group, *facts[2:5].tolist())
    return -facts[0], facts[1], facts[3], facts[5]


def _check_ranks(
    group: ProcessGroup, failed: float, max_outputs: float, negated_min_outputs: float
) -> None:
    """Check that no rank has failed, and that all have the same number of outputs."""
    if failed:
        raise RuntimeError(
            "biv: another rank of the process group got invalid input; see its error. "
            f"Rank {dist.get_rank(group)} stops too"
        )
    if max_outputs != -negated_min_outputs:
        raise ValueError(
            "target must have the same last dimension on every rank with per_output=True; "
            f"got {-negated_min_outputs:g} on one and {max_outputs:g} on another "
            "(0: a single output)"
        )


def report_failure(
    weighting: Weighting, group: ProcessGroup, device: torch.device, *, validate_args: bool
) -> None:
    """Take part in the exchange that the other ranks wait for, after this rank has failed.

    With `validate_args` the other ranks then raise too. Otherwise their losses are NaN.
    """
    empty = torch.empty(0, dtype=torch.float64, device=device)
    _, most_rows, outputs, _ = _exchange_summary(
        empty, empty.new_zeros(()), group, failed=True, check_ranks=False
    )
    if not validate_args:
        empty = empty.reshape(0, int(outputs)) if outputs else empty
        if weighting.policy.reads_batch:
            _gather(empty, int(most_rows), group)
        elif empty.ndim == 2:
            dist.all_reduce(smallest_per_output(empty), dist.ReduceOp.MIN, group)
        denominator = empty.new_full(empty.shape[1:], torch.nan)
        dist.all_reduce(denominator, dist.ReduceOp.SUM, group)


def _gather(variance: Tensor, most_rows: int, group: ProcessGroup) -> Tensor:
    """Return the variances of all ranks, in the order of the ranks.

    Every rank contributes `most_rows` rows. Missing rows are +inf, which every policy ignores.
    """
    rows = variance.new_full((most_rows, *variance.shape[1:]), torch.inf)
    rows[: len(variance)] = variance
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, rows, group)
    return torch.cat(parts)


def check_group(group: object) -> None:
    """Check that this process is a member of the group; None is valid and means a local loss."""
    if group is None:
        return
    if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
        _raise_invalid_group(f"got {validation.describe(group)}")
    if dist.get_rank(group) < 0:
        _raise_invalid_group("got a group that this process does not belong to")


def _raise_invalid_group(problem: str) -> NoReturn:
    raise TypeError(
        "process_group must be None or a torch.distributed.ProcessGroup that this process belongs "
        f"to (torch.distributed.group.WORLD, after init_process_group); {problem}"
        f"{argument_hint('process_group')}"
    )


def accumulation_windows(batches: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Iterate over successive lists of `size` batches; the last list may be shorter.

    Parameters
    ----------
    batches : iterable
        Micro-batches, such as a DataLoader.
    size : int
        Number of micro-batches per optimizer step, at least 1.

    Returns
    -------
    iterator of list
        Lists of `size` micro-batches. The last list holds the remaining ones.

    Raises
    ------
    TypeError
        If `size` is not an integer.
    ValueError
        If `size` is below 1.

    Examples
    --------
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
