"""Device, memory and precision of the training of a single network."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from biv._utils import validation


@dataclass(frozen=True)
class Compute:
    """Device, memory and precision of one network's training.

    Parameters
    ----------
    device : str, default=None
        Device of the network, such as "cpu" or "cuda"; None takes a GPU if torch finds one, else
        the CPU. Rows are copied to the device batch by batch. Set "cpu" to leave a GPU unused.
        Devices other than the CPU are untested.
    micro_batch : int, default=None
        Largest number of rows that pass through the network at a time; None passes a whole batch.
        Set it if a batch does not fit into memory. Batch normalisation then takes its statistics
        from the rows of a micro-batch, and needs at least two.
    bfloat16 : bool, default=False
        Whether the network computes in bfloat16 where torch's autocast does. The loss and the
        parameters keep full precision. Set it if your processor or GPU has instructions for
        bfloat16; otherwise it is slow.
    fused : bool, default=True
        Whether the optimizer updates all parameters in one pass. Set it to False to compare with
        torch's plain implementation.

    Raises
    ------
    TypeError
        If `micro_batch` is not an integer.
    ValueError
        If `micro_batch` is below 1, or `device` is unknown or not available.

    Notes
    -----
    Weights are normalised, and ε is chosen, over the whole batch. Up to rounding, the loss and its
    gradients therefore do not depend on `micro_batch`, unless a layer mixes rows.

    Examples
    --------
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
            device = torch.device(self.device or "cpu")
            if device.type == "cuda" and not torch.cuda.is_available():
                raise RuntimeError("torch finds no GPU")
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"device must be one that torch can use; got {self.device!r}: {error}"
            ) from None

    @property
    def resolved_device(self) -> torch.device:
        """Device of the network; if `device` is None, a GPU or else the CPU."""
        if self.device is None:
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def to_device(self, rows: Tensor) -> Tensor:
        """Return rows on the device; a copy to a GPU does not block."""
        if self.resolved_device.type == "cuda" and rows.device.type == "cpu":
            return rows.pin_memory().to(self.resolved_device, non_blocking=True)
        return rows.to(self.resolved_device)

    def precision(self) -> AbstractContextManager[object]:
        """Return the context manager under which the network is called."""
        return torch.autocast(self.resolved_device.type, torch.bfloat16, enabled=self.bfloat16)


DEFAULT_COMPUTE = Compute()
REFERENCE_COMPUTE = Compute(device="cpu", fused=False)
