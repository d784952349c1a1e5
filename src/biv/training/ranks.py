"""The processes that train one model together: alone, or as `torchrun` starts them."""

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
    """Another process of the group has said what is wrong, and this one stops with it."""


@dataclass(frozen=True)
class Ranks:
    """One process among those that train together.

    Attributes:
        rank: Number of this process, from 0 on.
        size: Number of processes.
        group: Process group of torch; None for a process by itself.
        side_group: The same processes once more, for what they exchange while `group` is busy.
    """

    rank: int = 0
    size: int = 1
    group: ProcessGroup | None = None
    side_group: ProcessGroup | None = None

    @classmethod
    @contextmanager
    def join(cls) -> Iterator[Ranks]:
        """The group that ``torchrun`` has started this process in, left at the end; or none.

        Tensors on a CPU are exchanged by gloo, those on a GPU by nccl. (The latter is untested.)
        """
        if not launched_by_torchrun():
            yield cls()
            return
        store, rank, size = next(rendezvous("env://"))
        if size == int(os.environ["LOCAL_WORLD_SIZE"]):
            # Restarted by torchrun, processes find the store that those before them have used, and
            # may take an address in it for that of one of theirs. (Not so on several machines,
            # whose counts differ: there it is left to torchrun to try again.)
            attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
            store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        yield cls.of_world()
        # Not after an error: a group whose other end is gone may take the process down with it,
        # which is about to end and says why.
        dist.destroy_process_group()

    @classmethod
    def of_world(cls) -> Ranks:
        """Return the processes of torch's default group; all of them call this."""
        world = dist.group.WORLD
        return cls(dist.get_rank(), dist.get_world_size(), world, dist.new_group())

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes, and speaks for all."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Everyone's, in the order of the ranks."""
        if self.group is None:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self.group)
        return found

    def run_on_first(self, make: Callable[[], T]) -> T:
        """What the first makes, for all."""
        made = self.run_on_all(lambda: make() if self.is_first else None)
        if self.group is None:
            return made  # type: ignore[return-value]
        held: list[Any] = [made]
        dist.broadcast_object_list(held, src=0, group=self.group)
        found: T = held[0]
        return found

    def run_on_all(self, work: Callable[[], T]) -> T:
        """Work that each does by itself; if one fails, all do, and nobody waits for it.

        Raises:
            OtherRankError: It failed elsewhere, where the error itself is raised.
        """
        try:
            done = work()
        except Exception as failure:
            # Raised from here, not kept: an exception that a frame of its own traceback holds keeps
            # the process group alive, which ends the process with it if it goes last.
            # Several may find the same fault; the first of them says it for all.
            first = self.gather(True).index(True)
            if first == self.rank:
                raise
            raise OtherRankError(f"rank {first} failed; see its error above") from failure
        failed = self.gather(False)
        if True in failed:
            raise OtherRankError(f"rank {failed.index(True)} failed; see its error above")
        return done

    def total(self, values: Tensor) -> Tensor:
        """The sum over all, in place."""
        if self.group is not None:
            dist.all_reduce(values, group=self.group)
        return values

    def wait(self) -> None:
        """For all to be here."""
        if self.group is not None:
            dist.barrier(self.group)
