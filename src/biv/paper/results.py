"""Results of runs: rounded and packed curves, or the error of a run that failed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from biv.paper.spec import Run
from biv.training import History
from biv.training.history import smoothed, smoothing

CURVES = ("test_loss", "train_loss", "train_loss_std", "effective_batch_size")
Curve = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RunResult:
    """Result of one run, as it is stored.

    Attributes
    ----------
    run : Run
        The run.
    test_loss : ndarray of float32, shape (evaluations,)
        Test loss at every evaluation, NaN after a stack stopped early.
    train_loss : ndarray of float32, shape (epochs,)
        Mean training loss of each epoch.
    train_loss_std : ndarray of float32, shape (epochs,)
        Standard deviation of the training loss within each epoch.
    effective_batch_size : ndarray of float32, shape (epochs,)
        Mean effective batch size of each epoch, in rows.
    diverged_at : int or None
        Step at which a loss, parameter or optimizer state was no longer finite; None if all were.
    provenance : mapping
        Versions, machine and time of the training.
    """

    run: Run
    test_loss: Curve
    train_loss: Curve
    train_loss_std: Curve
    effective_batch_size: Curve
    diverged_at: int | None
    provenance: Mapping[str, Any]

    @classmethod
    def of(cls, run: Run, history: History, provenance: Mapping[str, Any]) -> RunResult:
        """Return the result of a run, with the training curves of its history reduced to epochs."""
        steps = run.train_rows // run.batch_size
        train = _epochs(history.train_loss, steps, run.epochs)
        sizes = _epochs(history.effective_batch_size, steps, run.epochs)
        whole = np.full(evaluations(run), np.nan, dtype=np.float32)
        whole[: len(history.test_loss)] = history.test_loss
        return cls(
            run,
            _three_bytes(whole),
            _three_bytes(train.mean(axis=1)),
            _three_bytes(train.std(axis=1)),
            _three_bytes(sizes.mean(axis=1)),
            history.diverged_at,
            provenance,
        )

    @property
    def smoothed(self) -> npt.NDArray[np.float64]:
        """Test loss smoothed as in the paper's figures."""
        return smoothed(self.test_loss, smoothing(len(self.test_loss)))

    @property
    def summary(self) -> dict[str, float | bool | None]:
        """Lowest and last test losses of the run; None for a value that is not finite."""
        smooth = self.smoothed
        finite = smooth[np.isfinite(smooth)]
        return {
            "lowest": _number(np.nanmin(self.test_loss, initial=np.inf)),
            "lowest_smoothed": _number(finite.min(initial=np.inf)),
            "last": _number(self.test_loss[-1]) if len(self.test_loss) else None,
            "last_smoothed": _number(smooth[-1]) if len(smooth) else None,
            "diverged": self.diverged,
        }

    @property
    def diverged(self) -> bool:
        """Whether a value was not finite, or the last smoothed test loss is above 1."""
        every = self.run.test_every
        steps = np.arange(1, len(self.test_loss) + 1) * every
        whole = History(
            self.train_loss.astype(np.float64),
            self.effective_batch_size.astype(np.float64),
            self.test_loss.astype(np.float64),
            steps,
            self.diverged_at,
        )
        return whole.diverged


@dataclass(frozen=True)
class Failure:
    """A run that could not be trained, and its error."""

    run: Run
    error: str
    provenance: Mapping[str, Any]


def evaluations(run: Run) -> int:
    """Return the number of evaluations of a run."""
    return run.epochs * (run.train_rows // run.batch_size) // run.test_every


def _epochs(curve: npt.NDArray[np.float64], steps: int, epochs: int) -> npt.NDArray[np.float64]:
    """Return a curve of shape (epochs, steps), with NaN after a stack stopped early."""
    whole = np.full(epochs * steps, np.nan)
    whole[: len(curve)] = curve
    return whole.reshape(epochs, steps)


def _three_bytes(curve: npt.NDArray[Any]) -> Curve:
    """Round numbers to three bytes (by at most 1 part in 65,000), so that they compress better."""
    bits = np.ascontiguousarray(curve, dtype="<f4").view("<u4")
    rounded: Curve = ((bits + np.uint32(0x80)) & np.uint32(0xFFFFFF00)).view("<f4")
    return rounded


def _number(value: np.floating[Any]) -> float | None:
    return float(value) if np.isfinite(value) else None


def pack_curve(curve: Curve) -> bytes:
    """Compress a curve."""
    # The first bytes of all numbers come first, then the second ones, and so on. Signs and
    # exponents hardly change along a curve, so this order compresses better.
    raw = np.ascontiguousarray(curve, dtype="<f4").view(np.uint8).reshape(-1, 4)
    return zlib.compress(raw.T.tobytes(), 9)


def unpack_curve(data: bytes, length: int) -> Curve:
    """Return the curve of packed bytes; at most `length` numbers are unpacked.

    Raises
    ------
    ValueError
        The curve has another length, or the bytes are damaged.
    """
    whole = zlib.decompressobj()
    try:
        content = whole.decompress(data, 4 * length + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(content) != 4 * length or not whole.eof or whole.unused_data:
        raise ValueError(f"a curve must have {length} numbers")
    raw = np.frombuffer(content, dtype=np.uint8).reshape(4, length)
    curve: Curve = np.ascontiguousarray(raw.T).view("<f4").reshape(-1)
    return curve
