"""Processes that train one model together, as started by `torchrun`; or a single process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from biv._utils.torchrun import launched_by_torchrun

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")


class OtherRankError(RuntimeError):
    """Error raised in every other process of the group when one process has failed."""


@dataclass(frozen=True)
class Ranks:
    """Process group, seen from one of its processes.

    Attributes
    ----------
    rank : int
        Number of this process, counted from 0.
    size : int
        Number of processes.
    group : ProcessGroup or None
        Process group of torch; None for a single process.
    side_group : ProcessGroup or None
        Second group of the same processes, for exchanges while `group` is busy.
    """

    rank: int = 0
    size: int = 1
    group: ProcessGroup | None = None
    side_group: ProcessGroup | None = None

    @classmethod
    @contextmanager
    def join(cls) -> Iterator[Ranks]:
        """Join the processes that ``torchrun`` has started, if any, and leave them at the end.

        Tensors on a CPU are exchanged by gloo, those on a GPU by nccl, which is untested.
        """
        if not launched_by_torchrun():
            yield cls()
            return
        store, rank, size = next(rendezvous("env://"))
        if size == int(os.environ["LOCAL_WORLD_SIZE"]):
            # Processes that torchrun restarts find the old store. Without the prefix, they might
            # use addresses of processes that have exited. On several machines, the restart counts
            # may differ, so there is no prefix; torchrun tries again if an address is wrong.
            attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
            store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        yield cls.from_default_group()
        # Not after an error: destroying a group whose other processes have exited may kill this
        # process before it prints its error.
        dist.destroy_process_group()

    @classmethod
    def from_default_group(cls) -> Ranks:
        """Return the processes of torch's default group; every process must call this."""
        world = dist.group.WORLD
        return cls(dist.get_rank(), dist.get_world_size(), world, dist.new_group())

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and prints messages."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in the order of the ranks."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def run_on_first(self, function: Callable[[], T]) -> T:
        """Run a function in the first process only, and return its result in every process."""
        result = self.run_on_all(lambda: function() if self.is_first else None)
        if self.group is None:
            return result  # type: ignore[return-value]
        results: list[Any] = [result]
        dist.broadcast_object_list(results, src=0, group=self.group)
        first_result: T = results[0]
        return first_result

    def run_on_all(self, function: Callable[[], T]) -> T:
        """Run a function in every process; if it fails in one, it fails in all of them.

        Raises
        ------
        OtherRankError
            If the function failed in another process, which raises the error itself.
        """
        try:
            result = function()
        except Exception as failure:
            # Raised here instead of being stored: a stored exception would keep its own traceback
            # and the process group alive, and destroying the group last may kill the process.
            # If several processes fail, the first of them raises the error itself.
            first = self.gather(True).index(True)
            if first == self.rank:
                raise
            raise OtherRankError(f"rank {first} failed; see its error above") from failure
        failed = self.gather(False)
        if True in failed:
            raise OtherRankError(f"rank {failed.index(True)} failed; see its error above")
        return result

    def total(self, values: Tensor) -> Tensor:
        """Replace values by their sum over all processes, and return them."""
        if self.group is not None:
            dist.all_reduce(values, group=self.group)
        return values

    def wait(self) -> None:
        """Wait until every process has called this."""
        if self.group is not None:
            dist.barrier(self.group)
