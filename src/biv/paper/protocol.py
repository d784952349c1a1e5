"""From a run to a member of a stack: the paper's data, noise, scaling and network.

Every departure from the paper's text is numbered here and in paper/DEVIATIONS.md.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from biv import noise as noises
from biv.datasets import load_bike, load_bike_2011, load_utkface, split_rows
from biv.images import ImageDataset, Pixels
from biv.images.decode import count_by_reason
from biv.losses import registry
from biv.losses.modules import VarianceLoss
from biv.models import MLP, ResNet18
from biv.paper.spec import Loss, Noise, Run
from biv.preprocessing import FeatureScaler, LabelScaler
from biv.tables.dataset import Dataset
from biv.training import Member, Schedule, Triplets
from biv.training.data import as_features

Array = npt.NDArray[Any]


class Source(NamedTuple):
    """A data set as the paper prepares it.

    Attributes:
        data: Raw.
        x: Features of all rows, standardised over all of them; or images as they are.
        scaler: Of the labels, by the clean labels of all rows.
        mean_noise_raw: μ_P, in squared raw units.
        quiet: Which rows belong to the quiet hours, where noise depends on the hour.
        pixels: Statistics of all images, by which the network standardises them.
    """

    data: Dataset
    x: Array
    scaler: LabelScaler
    mean_noise_raw: float
    quiet: npt.NDArray[np.bool_] | None = None
    pixels: Pixels | None = None


@lru_cache(maxsize=2)
def source(dataset: str, pixels: int | None = None) -> Source:
    """Load and standardise a data set once in a process; images at so many pixels a side."""
    # NOTE[DIFF] 7: the statistics of all rows, clean labels included.
    if pixels is not None:
        # NOTE[DIFF] 18: all distinct files. NOTE[DIFF] 19: channel by channel.
        with warnings.catch_warnings():  # `left_out` has it, for whoever tells people once
            warnings.filterwarnings("ignore", "left out")
            faces = load_utkface(size=pixels)
        scale = LabelScaler.fit(faces.y)
        return Source(faces, faces.x, scale, 2_000.0, pixels=Pixels.fit(faces.x))
    data = load_bike() if dataset == "bike" else load_bike_2011()
    scaler = LabelScaler.fit(data.y)
    # NOTE[DIFF] 16: the paper's μ_P, and the same share of the label variance for the shipped half.
    mean = 20_000.0 if dataset == "bike" else scaler.variance_raw(0.608)
    x = FeatureScaler.fit(data.x)(data.x)
    return Source(data, x, scaler, float(mean), _quiet_hours(data))


def left_out(dataset: str, pixels: int | None) -> str | None:
    """What was not used of a folder of images, in words; None if all was."""
    data = source(dataset, pixels).data
    if not isinstance(data, ImageDataset) or not data.skipped:
        return None
    left = f"{len(data.skipped)} files are left out"
    return f"{dataset}: {len(data):,} images; {left}: {count_by_reason(data.skipped)}."


def _quiet_hours(data: Dataset) -> npt.NDArray[np.bool_]:
    """Hours 0 to 12: the first half of the hour's angle, both ends included, by its sine."""
    sine = data.x[:, data.feature_names.index("hour_sin")]
    return np.asarray(sine >= 0)


def schedule(run: Run) -> Schedule:
    """Epochs, batches, tests and optimiser of a run."""
    # NOTE[DIFF] 9: an incomplete last batch is dropped.
    # NOTE[DIFF] 8: the engine scores the whole test set; there is no mode in which it would not.
    return Schedule(
        epochs=run.epochs,
        batch_size=run.batch_size,
        drop_last=True,
        test_every=run.test_every,
        optimizer=run.optimizer,
    )


def network(run: Run) -> MLP | ResNet18:
    """The paper's network for a run's data set."""
    prepared = source(run.dataset, run.pixels)
    if prepared.pixels is not None:
        return ResNet18(*prepared.pixels)
    return MLP(features=prepared.x.shape[1])


class MemberFactory:
    """Makes members of runs; those of one seed share their rows, as tensors and in memory."""

    def __init__(self) -> None:
        self._tables: dict[tuple[object, ...], Tensor] = {}

    def __call__(self, run: Run) -> Member:
        """The member that trains this run."""
        prepared = source(run.dataset, run.pixels)
        split = split_rows(  # NOTE[DIFF] 11: by the seed
            len(prepared.data),
            train=run.train_rows,
            test=run.test_rows,
            generator=np.random.default_rng([run.seed, 0]),
        )
        tested = split.test
        if run.test_region != "all":
            tested = tested[_hours(prepared)[tested] == (run.test_region == "quiet")]
        labels, variance = _labels(run.noise, run.seed, prepared, split.train)
        sizes = (run.dataset, run.pixels, run.seed, run.train_rows, run.test_rows)
        clean = prepared.scaler.label(prepared.data.y[tested])
        test = Triplets(self._table((*sizes, run.test_region), prepared.x[tested]), _single(clean))
        rows = None
        if prepared.pixels is None:
            x = self._table((*sizes, "train"), prepared.x[split.train])
        else:  # images stay where they are, in a file; the labels of others are missing
            x, rows = self._table((run.dataset, run.pixels), prepared.x), torch.tensor(split.train)
            labels = _spread(labels, split.train, len(prepared.data), np.nan)
            variance = _spread(variance, split.train, len(prepared.data), np.inf)
        train = Triplets(x, _single(labels), _single(variance))
        loss = _loss(run.loss, prepared)
        return Member(train, test, loss, run.learning_rate, seed=run.seed, name=run.key, rows=rows)

    def _table(self, key: tuple[object, ...], rows: Array) -> Tensor:
        if key not in self._tables:
            self._tables[key] = as_features(rows) if rows.dtype == np.uint8 else _single(rows)
        return self._tables[key]


def _spread(values: Array, rows: npt.NDArray[np.intp], count: int, missing: float) -> Array:
    whole = np.full(count, missing)
    whole[rows] = values
    return whole


def _hours(prepared: Source) -> npt.NDArray[np.bool_]:
    if prepared.quiet is None:
        raise ValueError("noise that depends on the hour is for data that have one")
    return prepared.quiet


def _single(values: npt.NDArray[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def _labels(
    noise: Noise, seed: int, prepared: Source, rows: npt.NDArray[np.intp]
) -> tuple[Array, Array]:
    """Noisy labels of the rows, and the variances that the loss is told, in normalised units.

    Drawn in raw units from the seed alone, so that all methods of a seed see the same noise.
    """
    clean = prepared.data.y[rows]
    if noise.kind == "none":
        return prepared.scaler.label(clean), np.zeros(len(rows))
    generator = np.random.default_rng([seed, 1])
    mean = noise.level * prepared.mean_noise_raw
    if noise.kind == "hours":
        # Two values with the mean asked for, each hour of the day being equally frequent or nearly.
        low, quiet = noise.parameter, _hours(prepared)[rows]
        high = (1.0 - low * quiet.mean()) / (1.0 - quiet.mean())
        variance = mean * np.where(quiet, low, high)
    else:
        variance = _distribution(noise, mean).sample(len(rows), generator)
    noisy: Array = noises.corrupt(clean, variance, generator)
    if noise.disturbance:
        # NOTE[DIFF] 1: N(0, D_v σ²/9) is read as a standard deviation of √D_v·σ²/3; the other
        # reading, D_v·σ²/3, is that of D_v². Labels keep the true variance.
        d_v = noise.disturbance**2 if noise.squared_reading else noise.disturbance
        told: Array = noises.disturb(variance, d_v, np.random.default_rng([seed, 2]))
        variance = told
    return prepared.scaler.label(noisy), prepared.scaler.variance(variance)


def _distribution(
    noise: Noise, mean: float
) -> noises.Gamma | noises.Uniform | noises.BinaryUniform:
    if noise.kind == "gamma":
        return noises.Gamma(noise.parameter, mean)
    if noise.kind == "uniform":
        return noises.Uniform(mean, spread=noise.parameter)
    return noises.BinaryUniform(noise.parameter, mean)  # NOTE[DIFF] 14: U(0, 1) in raw units


def _loss(loss: Loss, prepared: Source) -> VarianceLoss:
    # NOTE[DIFF] 2: IV is the mean over the batch. NOTE[DIFF] 3: BIV divides by the sum over the
    # batch. NOTE[DIFF] 13: labels have unit variance here.
    minimised = registry.get(loss.kind)
    settings = {}
    if "epsilon" in minimised.settings:
        settings["epsilon"] = loss.epsilon
    if "threshold" in minimised.settings:
        raw = loss.threshold * (1.0 if loss.raw_threshold else prepared.mean_noise_raw)
        settings["threshold"] = prepared.scaler.variance(raw)
    return minimised.create(**settings)
