"""Build the member of a stack that trains a run: the paper's data, noise, scaling and network.

Every departure from the paper's text has a number here and in paper/DEVIATIONS.md.
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

    Attributes
    ----------
    data : Dataset
        The data set in raw units.
    x : ndarray
        Features of all rows, standardised by the statistics of all rows; images are kept as bytes.
    scaler : LabelScaler
        Scaler of the labels, fitted to the clean labels of all rows.
    mean_noise_raw : float
        The mean noise variance μ_P, in squared raw label units.
    quiet : ndarray of bool, shape (rows,), or None
        Rows of the quiet hours, for noise that depends on the hour.
    pixels : Pixels or None
        Statistics of all images, with which the network standardises them.
    """

    data: Dataset
    x: Array
    scaler: LabelScaler
    mean_noise_raw: float
    quiet: npt.NDArray[np.bool_] | None = None
    pixels: Pixels | None = None


@lru_cache(maxsize=2)
def source(dataset: str, pixels: int | None = None) -> Source:
    """Load and standardise a data set, once per process; `pixels` is the width of images."""
    # NOTE[DIFF] 7: statistics of all rows, including the clean labels of the test rows.
    if pixels is not None:
        # NOTE[DIFF] 18: all distinct files. NOTE[DIFF] 19: standardised per channel.
        with warnings.catch_warnings():  # `skipped_files_note` reports it once, for all workers
            warnings.filterwarnings("ignore", "left out")
            faces = load_utkface(size=pixels)
        scale = LabelScaler.fit(faces.y)
        return Source(faces, faces.x, scale, 2_000.0, pixels=Pixels.fit(faces.x))
    data = load_bike() if dataset == "bike" else load_bike_2011()
    scaler = LabelScaler.fit(data.y)
    # NOTE[DIFF] 16: the paper's μ_P; on the included half, the same fraction of the label variance.
    mean = 20_000.0 if dataset == "bike" else scaler.variance_raw(0.608)
    x = FeatureScaler.fit(data.x)(data.x)
    return Source(data, x, scaler, float(mean), _quiet_hours(data))


def skipped_files_note(dataset: str, pixels: int | None) -> str | None:
    """Return a message about the image files that were left out, or None if all are used."""
    data = source(dataset, pixels).data
    if not isinstance(data, ImageDataset) or not data.skipped:
        return None
    count = len(data.skipped)
    skipped = f"{count} file{'s were' if count > 1 else ' was'} left out"
    return f"{dataset}: {len(data):,} images; {skipped}: {count_by_reason(data.skipped)}."


def _quiet_hours(data: Dataset) -> npt.NDArray[np.bool_]:
    """Return which rows are in the hours 0 to 12, where the sine of the hour's angle is >= 0."""
    sine = data.x[:, data.feature_names.index("hour_sin")]
    return np.asarray(sine >= 0)


def schedule(run: Run) -> Schedule:
    """Return the epochs, batches, evaluations and optimizer of a run."""
    # NOTE[DIFF] 9: an incomplete last batch is dropped.
    # NOTE[DIFF] 8: the engine always scores the whole test set, in evaluation mode.
    return Schedule(
        epochs=run.epochs,
        batch_size=run.batch_size,
        drop_last=True,
        test_every=run.test_every,
        optimizer=run.optimizer,
    )


def network(run: Run) -> MLP | ResNet18:
    """Return the paper's network for the data set of a run."""
    prepared = source(run.dataset, run.pixels)
    if prepared.pixels is not None:
        return ResNet18(*prepared.pixels)
    return MLP(features=prepared.x.shape[1])


class MemberFactory:
    """Factory of stack members; members with the same seed share their row tensors in memory."""

    def __init__(self) -> None:
        self._tables: dict[tuple[object, ...], Tensor] = {}

    def __call__(self, run: Run) -> Member:
        """Return the member that trains a run."""
        prepared = source(run.dataset, run.pixels)
        split = split_rows(  # NOTE[DIFF] 11: a new split per seed
            len(prepared.data),
            train=run.train_rows,
            test=run.test_rows,
            generator=np.random.default_rng([run.seed, 0]),
        )
        test_rows = split.test
        if run.test_region != "all":
            quiet = _quiet_rows(prepared)[test_rows]
            test_rows = test_rows[quiet == (run.test_region == "quiet")]
        labels, variance = _labels(run.noise, run.seed, prepared, split.train)
        sizes = (run.dataset, run.pixels, run.seed, run.train_rows, run.test_rows)
        clean = prepared.scaler.label(prepared.data.y[test_rows])
        test_x = self._table((*sizes, run.test_region), prepared.x[test_rows])
        test = Triplets(test_x, _float32(clean))
        rows = None
        if prepared.pixels is None:
            x = self._table((*sizes, "train"), prepared.x[split.train])
        else:  # images stay in one file, so labels cover all rows; those of other rows are NaN
            x, rows = self._table((run.dataset, run.pixels), prepared.x), torch.tensor(split.train)
            labels = _scatter(labels, split.train, len(prepared.data), np.nan)
            variance = _scatter(variance, split.train, len(prepared.data), np.inf)
        train = Triplets(x, _float32(labels), _float32(variance))
        loss = _loss(run.loss, prepared)
        return Member(train, test, loss, run.learning_rate, seed=run.seed, name=run.key, rows=rows)

    def _table(self, key: tuple[object, ...], rows: Array) -> Tensor:
        if key not in self._tables:
            self._tables[key] = as_features(rows) if rows.dtype == np.uint8 else _float32(rows)
        return self._tables[key]


def _scatter(values: Array, rows: npt.NDArray[np.intp], count: int, missing: float) -> Array:
    whole = np.full(count, missing)
    whole[rows] = values
    return whole


def _quiet_rows(prepared: Source) -> npt.NDArray[np.bool_]:
    if prepared.quiet is None:
        raise ValueError("noise that depends on the hour requires the data set bike or bike2011")
    return prepared.quiet


def _float32(values: npt.NDArray[Any]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def _labels(
    noise: Noise, seed: int, prepared: Source, rows: npt.NDArray[np.intp]
) -> tuple[Array, Array]:
    """Return noisy labels of the rows and the variances that the loss receives, both standardised.

    The noise is drawn in raw units and depends on the seed alone, so that all methods of a seed see
    the same noise.
    """
    clean = prepared.data.y[rows]
    if noise.kind == "none":
        return prepared.scaler.label(clean), np.zeros(len(rows))
    generator = np.random.default_rng([seed, 1])
    mean = noise.level * prepared.mean_noise_raw
    if noise.kind == "hours":
        # Two variances, chosen so that their mean over the rows is `mean`.
        low, quiet = noise.parameter, _quiet_rows(prepared)[rows]
        high = (1.0 - low * quiet.mean()) / (1.0 - quiet.mean())
        variance = mean * np.where(quiet, low, high)
    else:
        variance = _distribution(noise, mean).sample(len(rows), generator)
    noisy: Array = noises.corrupt(clean, variance, generator)
    if noise.disturbance:
        # NOTE[DIFF] 1: N(0, D_v σ²/9) is read as a standard deviation of √D_v·σ²/3. The other
        # reading, D_v·σ²/3, is obtained with D_v². The labels keep their noise.
        d_v = noise.disturbance**2 if noise.squared_reading else noise.disturbance
        disturbed: Array = noises.disturb(variance, d_v, np.random.default_rng([seed, 2]))
        variance = disturbed
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
    # NOTE[DIFF] 2: IV is a mean over the batch. NOTE[DIFF] 3: BIV divides by the sum of the weights
    # of the batch. NOTE[DIFF] 13: labels have unit variance here, so ε is relative to it.
    definition = registry.get(loss.kind)
    settings = {}
    if "epsilon" in definition.settings:
        settings["epsilon"] = loss.epsilon
    if "threshold" in definition.settings:
        raw = loss.threshold * (1.0 if loss.raw_threshold else prepared.mean_noise_raw)
        settings["threshold"] = prepared.scaler.variance(raw)
    return definition.create(**settings)
