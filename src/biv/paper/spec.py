"""One run of the paper's protocol as a frozen record, with a canonical text and a hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from biv._utils import typed_json
from biv._utils.messages import shortened
from biv.losses import registry

VERSION = 1  # version of the protocol; a change of results needs a new one, as it enters the hash


@dataclass(frozen=True)
class Noise:
    """Distribution of the noise variance, P(σ²), in multiples of the data set's μ_P.

    Attributes
    ----------
    kind : str, default="none"
        "none" (clean labels), "gamma", "uniform", "binary" or "hours".
    parameter : float, default=0.0
        α of "gamma", V/V_max of "uniform", p of "binary" (with V_h = 0); for "hours", the variance
        in the quiet half of the day as a fraction of the mean variance.
    level : float, default=1.0
        Mean variance divided by μ_P.
    disturbance : float, default=0.0
        D_v, the size of the error of the variances that the loss receives.
    squared_reading : bool, default=False
        Whether the standard deviation of that error is D_v·σ²/3 instead of √D_v·σ²/3.
    """

    kind: str = "none"
    parameter: float = 0.0
    level: float = 1.0
    disturbance: float = 0.0
    squared_reading: bool = False

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, ("none", "gamma", "uniform", "binary", "hours"))
        for name in ("parameter", "level", "disturbance"):
            object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True)
class Loss:
    """Training loss and its settings, for labels of unit variance.

    Attributes
    ----------
    kind : str, default="l2"
        Name of a loss of :mod:`biv.losses.registry`: "l2", "iv", "biv" or "cutoff".
    epsilon : float, default=0.0
        ε of "iv" and "biv", as a fraction of the label variance.
    threshold : float, default=0.0
        C of "cutoff", as a multiple of μ_P or in squared raw label units.
    raw_threshold : bool, default=False
        Whether `threshold` is in squared raw label units.
    """

    kind: str = "l2"
    epsilon: float = 0.0
    threshold: float = 0.0
    raw_threshold: bool = False

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, registry.names())
        for name in ("epsilon", "threshold"):
            object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True)
class Run:
    """One training of one network.

    Attributes
    ----------
    dataset : str
        "bike", "bike2011" or "utkface".
    noise : Noise
        Noise of the training labels.
    loss : Loss
        Training loss.
    seed : int
        Seed of the split, the noise, the network and the order of the rows.
    train_rows : int, default=7000
        Number of training rows.
    test_rows : int, default=3379
        Number of test rows.
    test_region : str, default="all"
        "all", "quiet" or "noisy": the hours whose test rows are used.
    epochs : int, default=100
        Number of passes over the training rows; an incomplete last batch is dropped.
    batch_size : int, default=256
        Number of rows per step.
    test_every : int, default=1
        Number of steps between two evaluations.
    optimizer : str, default="adam"
        "adam" or "sgd".
    learning_rate : float, default=1e-3
        Learning rate of the optimizer.
    pixels : int or None, default=None
        Width and height of the images, for a data set of images.
    """

    dataset: str
    noise: Noise
    loss: Loss
    seed: int
    train_rows: int = 7_000
    test_rows: int = 3_379
    test_region: str = "all"
    epochs: int = 100
    batch_size: int = 256
    test_every: int = 1
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    pixels: int | None = None

    def __post_init__(self) -> None:
        _one_of("dataset", self.dataset, ("bike", "bike2011", "utkface"))
        if (self.dataset == "utkface") != (self.pixels is not None):
            raise ValueError(
                "pixels must be given for the data set utkface and must be None for the others; "
                f"got {shortened(self.pixels)} for {self.dataset}"
            )
        _one_of("test_region", self.test_region, ("all", "quiet", "noisy"))
        object.__setattr__(self, "learning_rate", float(self.learning_rate))

    def canonical(self) -> str:
        """Return the run as JSON with sorted keys and all fields that are not None."""
        present = {name: value for name, value in asdict(self).items() if value is not None}
        content = {"version": VERSION, **present}
        return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @property
    def key(self) -> str:
        """Hash of the canonical text, the key of the run in a store."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:20]

    @classmethod
    def from_canonical(cls, text: str) -> Run:
        """Return the run of a canonical text.

        Raises
        ------
        ValueError
            The text is damaged, or has another version of the protocol.
        """
        version = typed_json.decode(text, dict[str, Any]).get("version")
        if version != VERSION:
            raise ValueError(
                f"expected a run of version {VERSION}; got version {shortened(version)}. Use the "
                "release of biv that wrote it"
            )
        return typed_json.decode(text, cls)

    def shape(self) -> tuple[Any, ...]:
        """Return the settings that runs of one stack must have in common."""
        varied = {"noise", "loss", "seed", "learning_rate", "test_region"}
        return tuple(
            getattr(self, field.name) for field in fields(self) if field.name not in varied
        )


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        names = ", ".join(repr(one) for one in allowed)
        raise ValueError(f"{name} must be one of {names}; got {shortened(value)}")
