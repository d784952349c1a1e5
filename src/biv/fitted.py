"""What a fit leaves behind: networks, all that leads to them and back, and its form in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from msgspec import Meta
from torch import Tensor, nn

from biv import _checks, _json, errorbars, modelfile
from biv._checks import shortened
from biv._json import NonNegative, Positive
from biv.datasets import FeatureScaler, LabelScaler
from biv.errorbars import ErrorBars
from biv.features import FeatureEncoder
from biv.fitting import Story, StoryTold, raw, single
from biv.models import MLP
from biv.training import CrossFit

Array = npt.NDArray[Any]

FAR = 1e3  # standard deviations from the mean, below which no feature makes a prediction overflow


@dataclass(frozen=True)
class OwnNetwork:
    """Networks that a function of the user's makes, which draws from torch's global generator."""

    function: Callable[[int, int], nn.Module]
    features: int
    outputs: int

    def __call__(self, generator: torch.Generator) -> nn.Module:
        """One of them; the global generator is as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(generator.initial_seed())
            module: object = self.function(self.features, self.outputs)
        if not isinstance(module, nn.Module):
            found = _checks.describe(module)
            raise TypeError(f"model must make an nn.Module; found {found}")
        return module


PREDICTABLE = "a number that the model has a finite prediction for"


class RowError(ValueError):
    """A row that has no finite prediction.

    Attributes:
        row: Its place, from 0 on.
        column: The name, or the place, of the column that is to blame; None if none is.
    """

    row: int = -1
    column: Any = None

    @classmethod
    def of(cls, row: int, column: Any, found: float) -> RowError:
        """With what was found in the cell."""
        error = cls(
            f"X must hold numbers that the model has a finite prediction for; found {found:g} in "
            f"row {row}, column {shortened(column)}"
        )
        error.row, error.column = row, column
        return error


class PartTold(TypedDict):
    """A :class:`Part` as JSON has it, but for its tensors; no network if its maker is a user's."""

    members: Annotated[int, Meta(ge=1)]
    network: MLP | None
    outputs: Annotated[int, Meta(ge=1)]
    labels: list[tuple[float, Positive]]
    epoch: Annotated[int, Meta(ge=1)]
    scores: list[float | None]
    pooled_tau2: float
    epsilon: NonNegative | None
    story: StoryTold


class FittedTold(TypedDict):
    """What all parts of a :class:`Fitted` have in common, as JSON has it."""

    single: bool
    calibrated: bool
    columns: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Part:
    """The ensemble of one output.

    In files of version 0.1 one ensemble may have several outputs.

    Attributes:
        features: From the encoded table to what the networks want.
        labels: The scaler of each output.
        recipe: How its networks are made.
        ensemble: The networks, and how they were chosen.
        story: What was found out about the labels.
        epsilon: ε in units of the label variance, if it is one number.
    """

    features: FeatureScaler
    labels: list[LabelScaler]
    recipe: MLP | OwnNetwork
    ensemble: CrossFit
    story: Story
    epsilon: float | None

    def predict(self, matrix: Array) -> tuple[Array, Array]:
        """Return the members' mean and their variance, each (N, outputs), in units of y."""
        each = self.ensemble.predict(single(self.features(matrix))).double().numpy()
        scales = np.array([scaler.std for scaler in self.labels])
        spread = each.var(axis=0, ddof=1 if len(each) > 1 else 0) * scales**2
        return raw(self.labels, each.mean(axis=0)), spread

    @property
    def out_of_fold(self) -> Array:
        """What members that have not learned from a row predict for it, in units of y."""
        return raw(self.labels, self.ensemble.out_of_fold.double().numpy())

    def told(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return it as tensors and JSON; :meth:`from_told` reads them."""
        tensors = {
            f"member.{k}.{name}": tensor
            for k, module in enumerate(self.ensemble.modules)
            for name, tensor in module.state_dict().items()
        }
        tensors |= {
            "features.mean": torch.from_numpy(self.features.mean),
            "features.std": torch.from_numpy(self.features.std),
            "out_of_fold": self.ensemble.out_of_fold,
        }
        return tensors, {
            "members": len(self.ensemble.modules),
            "network": None if isinstance(self.recipe, OwnNetwork) else asdict(self.recipe),
            "outputs": len(self.labels),
            "labels": [[scaler.mean, scaler.std] for scaler in self.labels],
            "epoch": int(self.ensemble.epoch),
            "scores": modelfile.plain(self.ensemble.scores.tolist()),
            "pooled_tau2": self.ensemble.tau2,
            "epsilon": self.epsilon,
            "story": modelfile.plain(self.story._asdict()),
        }

    @classmethod
    def from_told(
        cls,
        tensors: dict[str, Tensor],
        content: dict[str, Any],
        function: Callable[[int, int], nn.Module] | None,
    ) -> Part:
        """Return the part that :meth:`told` described."""
        told = _json.convert(content, PartTold)
        _check_part(tensors, told)
        features = FeatureScaler(tensors["features.mean"].numpy(), tensors["features.std"].numpy())
        recipe: MLP | OwnNetwork | None = told["network"]
        if function is not None:
            recipe = OwnNetwork(function, len(features.mean), told["outputs"])
        assert recipe is not None
        modules = [
            _restored(recipe, _below(f"member.{k}.", tensors)) for k in range(told["members"])
        ]
        scores = np.array([np.inf if s is None else s for s in told["scores"]])
        return cls(
            features,
            [LabelScaler(mean, std) for mean, std in told["labels"]],
            recipe,
            CrossFit(modules, told["epoch"], scores, tensors["out_of_fold"], told["pooled_tau2"]),
            Story.from_told(told["story"]),
            told["epsilon"],
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model.

    Attributes:
        single: Whether y had one dimension.
        encoder: From a table to a matrix.
        parts: The ensembles, one per output.
        calibrated: Whether variances were multiplied.
    """

    single: bool
    encoder: FeatureEncoder
    parts: list[Part]
    calibrated: bool

    @property
    def labels(self) -> list[LabelScaler]:
        """The scaler of each output."""
        return [scaler for part in self.parts for scaler in part.labels]

    @property
    def story(self) -> Story:
        """What was found out about the labels of all outputs."""
        return Story.joined([part.story for part in self.parts])

    @property
    def epsilon(self) -> list[float] | None:
        """ε of each output in squared units of y, if it is a number."""
        found = [
            part.epsilon * scaler.std**2
            for part in self.parts
            for scaler in part.labels
            if part.epsilon is not None
        ]
        return found or None

    @property
    def epoch(self) -> int:
        """The epoch that was chosen; the last of them if there are several outputs."""
        return max(part.ensemble.epoch for part in self.parts)

    @property
    def scores(self) -> npt.NDArray[np.float64]:
        """The mean score of the outputs after every epoch.

        An output whose training has ended counts with the score of the epoch that was chosen.
        """
        each = [part.ensemble.scores for part in self.parts]
        longest = max(map(len, each))
        ended = [np.pad(s, (0, longest - len(s)), constant_values=s.min()) for s in each]
        outputs = [len(part.labels) for part in self.parts]
        return np.average(ended, axis=0, weights=outputs)

    def predict(self, table: Any, names: Sequence[Any] | None = None) -> tuple[Array, Array]:
        """Return the members' mean and their variance, each (N, outputs), in units of y.

        Args:
            table: A frame or an array.
            names: Of the columns of an array, if they have any.

        Raises:
            RowError: A number is too large for a finite prediction.
        """
        matrix = self.encoder(table)
        with np.errstate(over="ignore", invalid="ignore"):  # it is looked for below
            means, spreads = zip(*(part.predict(matrix) for part in self.parts), strict=True)
            mean, spread = np.concatenate(means, axis=1), np.concatenate(spreads, axis=1)
            both = mean + spread
        self.require_finite(both, matrix, getattr(table, "columns", names))
        return mean, spread

    def require_finite(self, predicted: Array, matrix: Array, names: Sequence[Any] | None) -> None:
        """Check that all predictions are finite, (N, outputs).

        Args:
            predicted: What is predicted for each row.
            matrix: The rows, encoded.
            names: Of the columns of the table, if they have any.

        Raises:
            RowError: A number is too large for a finite prediction.
        """
        finite = np.isfinite(predicted).all(axis=1)
        if not finite.all():
            raise self._row_error(matrix, int(np.flatnonzero(~finite)[0]), names)

    def _row_error(self, matrix: Array, row: int, names: Sequence[Any] | None) -> ValueError:
        """What to say of a row whose prediction is not finite."""
        size = np.max([np.abs(part.features(matrix[[row]])[0]) for part in self.parts], axis=0)
        worst = int(np.nan_to_num(size, nan=np.inf).argmax())
        if size[worst] < FAR:
            return ValueError(f"the prediction of row {row} is not finite: the model is damaged")
        place = self.encoder.place_of(worst)
        column = place if names is None else names[place]
        return RowError.of(row, column, float(matrix[row, worst]))

    @property
    def out_of_fold(self) -> Array:
        """What members that have not learned from a row predict for it, in units of y."""
        return np.concatenate([part.out_of_fold for part in self.parts], axis=1)

    def shaped(self, values: Array) -> Array:
        """(N, outputs) as y was."""
        return values[:, 0] if self.single else values

    def an_output(self, values: Any) -> Any:
        """The first if there is but one output, None if there are none."""
        if values is None:
            return None
        return values[0] if self.single else np.array(values)

    def new_variance(self, y: Array, y_var: Any, y_std: Any) -> Array | None:
        """Of labels that were not learned from, (N, D); calibrated and filled in as those were."""
        bars = errorbars.read(y, y_var, y_std)
        if bars is None:
            return None
        story = self.story
        if self.calibrated and story.factors is not None:
            bars = ErrorBars(errorbars.multiplied(bars.variance, story.factors), bars.name)
        if story.unknown_variance is not None:
            return bars.filled(story.unknown_variance)
        errorbars.require_known(bars, ": fit with unknown_variance='median' to have it filled in")
        return bars.variance

    def told(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return it as tensors and JSON; :meth:`from_told` reads them.

        A model of one part has the fields of version 0.1; several are in a list, and the names of
        their tensors begin with their number.
        """
        content = {
            "single": self.single,
            "calibrated": bool(self.calibrated),
            "columns": self.encoder.told(),
        }
        each = [part.told() for part in self.parts]
        if len(each) == 1:
            return each[0][0], content | each[0][1]
        tensors: dict[str, Tensor] = {}
        for number, (own, _) in enumerate(each):
            tensors |= {f"output.{number}.{name}": tensor for name, tensor in own.items()}
        network = each[0][1]["network"]
        return tensors, content | {"network": network, "parts": [about for _, about in each]}

    @classmethod
    def from_told(
        cls,
        tensors: dict[str, Tensor],
        content: dict[str, Any],
        function: Callable[[int, int], nn.Module] | None = None,
    ) -> Fitted:
        """Return what :meth:`told` described, with the function that made the user's networks."""
        each = [(tensors, content)]
        if "parts" in content:
            parts = _json.convert(content["parts"], list[dict[str, Any]])
            each = [
                (_below(f"output.{number}.", tensors), about) for number, about in enumerate(parts)
            ]
        told = _json.convert(content, FittedTold)
        fitted = cls(
            told["single"],
            FeatureEncoder.from_told(told["columns"]),
            [Part.from_told(own, about, function) for own, about in each],
            told["calibrated"],
        )
        _check_fitted(fitted)
        return fitted


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _check_part(tensors: dict[str, Tensor], told: PartTold) -> None:
    """Check what types do not say: that the numbers of a file agree with each other.

    Raises:
        ValueError: They do not.
    """
    mean, std, out_of_fold = (
        tensors[name] for name in ("features.mean", "features.std", "out_of_fold")
    )
    for name, values, dtype, ndim in (
        ("features.mean", mean, torch.float64, 1),
        ("features.std", std, torch.float64, 1),
        ("out_of_fold", out_of_fold, torch.float32, 2),
    ):
        if values.dtype != dtype or values.ndim != ndim or bool(values.isnan().any()):
            raise ValueError(f"{name} must have {ndim} dimensions, dtype {dtype} and no NaN")
    outputs, story, network = told["outputs"], told["story"], told["network"]
    lists = (story[name] for name in ("factors", "reduced_chi_squared", "unknown_variance"))
    lengths = [len(told["labels"]), len(story["tau2"]), out_of_fold.shape[1]]
    lengths += [len(own) for own in lists if own is not None]
    if set(lengths) != {outputs}:
        raise ValueError(f"every list of outputs must have {outputs}; found {lengths}")
    if len(mean) != len(std) or not bool(mean.isfinite().all() and (std >= 0).all()):
        raise ValueError("features must have finite means and as many standard deviations >= 0")
    if told["epoch"] > len(told["scores"]) or told["scores"][told["epoch"] - 1] is None:
        raise ValueError(f"scores must have one of the chosen epoch, {told['epoch']}")
    if network is not None and (network.features, network.outputs) != (len(mean), outputs):
        raise ValueError(f"the network must have {len(mean)} features and {outputs} outputs")


def _check_fitted(fitted: Fitted) -> None:
    """Check that all parts have the features that the table gives, and one output alone if single.

    Raises:
        ValueError: They have not.
    """
    matrix = len(fitted.encoder.names([""] * len(fitted.encoder.columns)))
    features = {len(part.features.mean) for part in fitted.parts}
    if features != {matrix}:
        raise ValueError(f"columns give {matrix} features; the networks have {sorted(features)}")
    rows = {len(part.ensemble.out_of_fold) for part in fitted.parts}
    if len(rows) != 1 or (fitted.single and len(fitted.labels) != 1):
        raise ValueError("the outputs do not belong together")


def _restored(recipe: MLP | OwnNetwork, state: dict[str, Tensor]) -> nn.Module:
    """Return a network with these parameters.

    Raises:
        ValueError: They are not those of this network.
        RuntimeError: Likewise, as torch says it.
    """
    if isinstance(recipe, MLP):  # before memory is taken for as many as the file says there are
        count = sum(own.numel() for own in state.values())
        if count != recipe.size or not all(bool(own.isfinite().all()) for own in state.values()):
            raise ValueError(f"a network must have {recipe.size} finite parameters; found {count}")
    module = recipe(torch.Generator())
    for name, own in module.state_dict().items():
        if name in state and state[name].dtype != own.dtype:
            raise ValueError(f"{name} must have dtype {own.dtype}; found {state[name].dtype}")
    module.load_state_dict(state)
    return module.eval()
