"""Where and how a network that is trained by itself is computed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from biv._utils import validation


@dataclass(frozen=True)
class Compute:
    """Device, memory and precision of one network's training; none changes what is minimised.

    Attributes:
        device: "cpu", "cuda", … The rows stay where they are, and go there batch by batch; the
            network stays there. None is a GPU where there is one, else the CPU. (Devices other than
            the CPU are untested.)
        micro_batch: Rows that go through the network at a time, where a whole batch takes too much
            memory; None is a whole batch. Losses and gradients add up to those of the batch, over
            all of which weights are normalised and ε is chosen; a layer that looks at other rows,
            as batch normalisation does, sees those of the micro-batch, and wants two at least.
        bfloat16: Whether the network computes in bfloat16 where torch's autocast deems it safe. The
            loss and the parameters are in full precision. Worth it where the processor or GPU has
            instructions for it, and slow where it does not.
        fused: Whether the optimiser updates all parameters in one pass.

    Example:
        >>> Compute(micro_batch=64)
        Compute(device=None, micro_batch=64, bfloat16=False, fused=True)
    """

    device: str | None = None
    micro_batch: int | None = None
    bfloat16: bool = False
    fused: bool = True

    def __post_init__(self) -> None:
        if self.micro_batch is not None:
            validation.integer("micro_batch", self.micro_batch, at_least=1)
        try:
            place = torch.device(self.device or "cpu")
            if place.type == "cuda" and not torch.cuda.is_available():
                raise RuntimeError("there is no GPU that torch can use")
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"device: {error}; got {self.device!r}") from None

    @property
    def place(self) -> torch.device:
        """The device, chosen if it was left open."""
        if self.device is None:
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def moved(self, rows: Tensor) -> Tensor:
        """Rows on the device; without waiting for them where that is a GPU."""
        if self.place.type == "cuda" and rows.device.type == "cpu":
            return rows.pin_memory().to(self.place, non_blocking=True)
        return rows.to(self.place)

    def precision(self) -> AbstractContextManager[object]:
        """For the time that the network is called."""
        return torch.autocast(self.place.type, torch.bfloat16, enabled=self.bfloat16)


HERE = Compute()
PLAIN = Compute(device="cpu", fused=False)
