"""What a fit leaves behind: networks, all that leads to them and back, and its form in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from biv import _checks, errorbars, modelfile
from biv.datasets import FeatureScaler, LabelScaler
from biv.errorbars import ErrorBars
from biv.features import FeatureEncoder
from biv.fitting import Story, raw, single
from biv.models import MLP, Periodic
from biv.training import CrossFit

Array = npt.NDArray[Any]


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


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model.

    Attributes:
        single: Whether y had one dimension.
        encoder: From a table to a matrix.
        features: From that to what the networks want.
        labels: The same for each output.
        recipe: Of the networks.
        ensemble: The networks, and how they were chosen.
        story: What was found out about the labels.
        epsilon: In units of the label variance, if it is one number.
        calibrated: Whether variances were multiplied.
    """

    single: bool
    encoder: FeatureEncoder
    features: FeatureScaler
    labels: list[LabelScaler]
    recipe: MLP | OwnNetwork
    ensemble: CrossFit
    story: Story
    epsilon: float | None
    calibrated: bool

    def predict(self, table: Any) -> tuple[Array, Array]:
        """The members' mean and their variance, each (N, outputs), in units of y."""
        x = single(self.features(self.encoder(table)))
        each = self.ensemble.predict(x).double().numpy()
        scales = np.array([scaler.std for scaler in self.labels])
        spread = each.var(axis=0, ddof=1 if len(each) > 1 else 0) * scales**2
        return raw(self.labels, each.mean(axis=0)), spread

    @property
    def out_of_fold(self) -> Array:
        """What members that have not learned from a row predict for it, in units of y."""
        return raw(self.labels, self.ensemble.out_of_fold.double().numpy())

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
        """The same in tensors and in what JSON has; :meth:`from_told` is the way back."""
        tensors = {
            f"member.{k}.{name}": tensor
            for k, module in enumerate(self.ensemble.modules)
            for name, tensor in module.state_dict().items()
        }
        tensors["features.mean"] = torch.from_numpy(self.features.mean)
        tensors["features.std"] = torch.from_numpy(self.features.std)
        tensors["out_of_fold"] = self.ensemble.out_of_fold
        return tensors, {
            "members": len(self.ensemble.modules),
            "network": None if isinstance(self.recipe, OwnNetwork) else asdict(self.recipe),
            "outputs": len(self.labels),
            "labels": [[scaler.mean, scaler.std] for scaler in self.labels],
            "single": self.single,
            "epoch": int(self.ensemble.epoch),
            "scores": modelfile.plain(self.ensemble.scores.tolist()),
            "pooled_tau2": self.ensemble.tau2,
            "epsilon": self.epsilon,
            "calibrated": bool(self.calibrated),
            "story": modelfile.plain(self.story._asdict()),
            "columns": self.encoder.told(),
        }

    @classmethod
    def from_told(
        cls,
        tensors: dict[str, Tensor],
        told: dict[str, Any],
        function: Callable[[int, int], nn.Module] | None = None,
    ) -> Fitted:
        """Back from what :meth:`told` returned, with the function that made networks of its own."""
        features = FeatureScaler(tensors["features.mean"].numpy(), tensors["features.std"].numpy())
        recipe: MLP | OwnNetwork
        if function is None:
            recipe = mlp_from_told(told["network"])
        else:
            recipe = OwnNetwork(function, len(features.mean), told["outputs"])
        modules: list[nn.Module] = []
        for k in range(told["members"]):
            module = recipe(torch.Generator())
            prefix = f"member.{k}."
            own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
            module.load_state_dict(own)
            modules.append(module.eval())
        scores = np.array([np.inf if s is None else s for s in told["scores"]])
        return cls(
            told["single"],
            FeatureEncoder.from_told(told["columns"]),
            features,
            [LabelScaler(mean, std) for mean, std in told["labels"]],
            recipe,
            CrossFit(modules, told["epoch"], scores, tensors["out_of_fold"], told["pooled_tau2"]),
            Story.from_told(told["story"]),
            told["epsilon"],
            told["calibrated"],
        )


def mlp_from_told(told: dict[str, Any]) -> MLP:
    """An MLP back from JSON."""
    periodic = told["periodic"]
    if periodic is not None:
        periodic = Periodic(**{**periodic, "columns": tuple(periodic["columns"])})
    return MLP(**{**told, "widths": tuple(told["widths"]), "periodic": periodic})
