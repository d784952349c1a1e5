"""One run of the paper's protocol, as data: frozen, with a canonical form and a hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from biv._utils import typed_json
from biv._utils.messages import shortened
from biv.losses import registry

VERSION = 1  # of the protocol: a change that alters results makes another hash of every run


@dataclass(frozen=True)
class Noise:
    """P(σ²), in multiples of the data set's μ_P.

    Attributes:
        kind: "none" (clean labels), "gamma", "uniform", "binary" or "hours".
        parameter: α of "gamma", V/V_max of "uniform", p of "binary" (V_h = 0); of "hours", the
            share of the mean variance that the quiet half of the day has.
        level: The mean variance over μ_P.
        disturbance: D_v, by how much the variances that the loss sees are misjudged.
        squared_reading: Whether D_v is read as a factor of the standard deviation, σ²·D_v/3,
            instead of the variance, σ²·√D_v/3.
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
    """What is minimised; labels have unit variance.

    Attributes:
        kind: Name of a loss of :mod:`biv.losses.registry`: "l2", "iv", "biv", "cutoff".
        epsilon: Of "iv" and "biv", relative to the label variance.
        threshold: C of "cutoff", over μ_P, or in raw units.
        raw_threshold: Whether it is in raw units.
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

    Attributes:
        dataset: "bike", "bike2011" or "utkface".
        noise: On the training labels.
        loss: What is minimised.
        seed: Of the split, the noise, the network and the order of the rows.
        train_rows: To train on.
        test_rows: To test on.
        test_region: "all" of them, or only those of the "quiet" or the "noisy" hours.
        epochs: Passes over the training rows; an incomplete batch is dropped.
        batch_size: Rows a step.
        test_every: Steps between two tests.
        optimizer: "adam" or "sgd".
        learning_rate: Its.
        pixels: Of a side of the images, of a data set that has images; else None.
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
            found = shortened(self.pixels)
            raise ValueError(f"pixels are for images, and images need them; got {found}")
        _one_of("test_region", self.test_region, ("all", "quiet", "noisy"))
        object.__setattr__(self, "learning_rate", float(self.learning_rate))

    def canonical(self) -> str:
        """The one text of this run: JSON with sorted keys, every field that it has written out."""
        fields_of_it = {name: value for name, value in asdict(self).items() if value is not None}
        content = {"version": VERSION, **fields_of_it}
        return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @property
    def key(self) -> str:
        """A hash of the canonical form, by which the store knows the run."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:20]

    @classmethod
    def from_canonical(cls, text: str) -> Run:
        """The run that a canonical form is of.

        Raises:
            ValueError: It is of another version of the protocol, or is damaged.
        """
        version = typed_json.decode(text, dict[str, Any]).get("version")
        if version != VERSION:
            found = shortened(version)
            raise ValueError(
                f"a run of version {VERSION} was expected; got version {found}: use the release "
                "of biv that wrote it"
            )
        return typed_json.decode(text, cls)

    def shape(self) -> tuple[Any, ...]:
        """What runs must have in common to be trained in one stack."""
        own = {"noise", "loss", "seed", "learning_rate", "test_region"}
        return tuple(getattr(self, field.name) for field in fields(self) if field.name not in own)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        names = ", ".join(repr(one) for one in allowed)
        raise ValueError(f"{name} must be one of {names}; got {shortened(value)}")
