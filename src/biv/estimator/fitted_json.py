"""A fitted model as tensors and JSON, and back, with every number checked against the others."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, TypedDict

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from biv._utils import typed_json
from biv._utils.typed_json import NonNegative, Positive
from biv.estimator.diagnostics import DiagnosticsJson, LabelDiagnostics
from biv.estimator.fitted import Fitted, FittedPart
from biv.estimator.networks import CustomNetwork, Network, NetworkFunction
from biv.models import MLP
from biv.preprocessing import FeatureScaler, LabelScaler
from biv.preprocessing.encoder import FeatureEncoder
from biv.training import CrossFit


class PartJson(TypedDict):
    """A :class:`FittedPart` without its tensors; no network if a function of the user made it."""

    members: Annotated[int, Meta(ge=1)]
    network: MLP | None
    outputs: Annotated[int, Meta(ge=1)]
    labels: list[tuple[float, Positive]]
    epoch: Annotated[int, Meta(ge=1)]
    scores: list[float | None]
    pooled_tau2: float
    epsilon: NonNegative | None
    story: DiagnosticsJson


class FittedJson(TypedDict):
    """What all parts of a :class:`Fitted` have in common."""

    single: bool
    calibrated: bool
    columns: list[dict[str, Any]]


def to_json(fitted: Fitted) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a fitted model as tensors and JSON; :func:`from_json` reads them.

    A model of one part has the fields of version 0.1; several are in a list, and the names of
    their tensors begin with their number.
    """
    content = {
        "single": fitted.single,
        "calibrated": bool(fitted.calibrated),
        "columns": fitted.encoder.to_json(),
    }
    each = [_part_to_json(part) for part in fitted.parts]
    if len(each) == 1:
        return each[0][0], content | each[0][1]
    tensors: dict[str, Tensor] = {}
    for number, (own, _) in enumerate(each):
        tensors |= {f"output.{number}.{name}": tensor for name, tensor in own.items()}
    network = each[0][1]["network"]
    return tensors, content | {"network": network, "parts": [about for _, about in each]}


def _part_to_json(part: FittedPart) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {
        f"member.{k}.{name}": tensor
        for k, module in enumerate(part.ensemble.modules)
        for name, tensor in module.state_dict().items()
    }
    tensors |= {
        "features.mean": torch.from_numpy(part.features.mean),
        "features.std": torch.from_numpy(part.features.std),
        "out_of_fold": part.ensemble.out_of_fold,
    }
    return tensors, {
        "members": len(part.ensemble.modules),
        "network": None if isinstance(part.network, CustomNetwork) else asdict(part.network),
        "outputs": len(part.labels),
        "labels": [[scaler.mean, scaler.std] for scaler in part.labels],
        "epoch": int(part.ensemble.epoch),
        "scores": typed_json.to_json(part.ensemble.scores.tolist()),
        "pooled_tau2": part.ensemble.tau2,
        "epsilon": part.epsilon,
        "story": typed_json.to_json(part.diagnostics._asdict()),
    }


def from_json(
    tensors: dict[str, Tensor], content: dict[str, Any], function: NetworkFunction | None = None
) -> Fitted:
    """Return the fitted model that :func:`to_json` was given.

    Args:
        tensors: Its tensors.
        content: Its JSON.
        function: Function that made its networks, if it was one of the user's.

    Raises:
        ValueError: Something is missing, of another type, or contradicts the rest.
    """
    each = [(tensors, content)]
    if "parts" in content:
        parts = typed_json.convert(content["parts"], list[dict[str, Any]])
        each = [(_below(f"output.{number}.", tensors), about) for number, about in enumerate(parts)]
    common = typed_json.convert(content, FittedJson)
    fitted = Fitted(
        common["single"],
        FeatureEncoder.from_json(common["columns"]),
        [_part_from_json(own, about, function) for own, about in each],
        common["calibrated"],
    )
    _check_fitted(fitted)
    return fitted


def _part_from_json(
    tensors: dict[str, Tensor], content: dict[str, Any], function: NetworkFunction | None
) -> FittedPart:
    part = typed_json.convert(content, PartJson)
    _check_part(tensors, part)
    features = FeatureScaler(tensors["features.mean"].numpy(), tensors["features.std"].numpy())
    network: Network | None = part["network"]
    if function is not None:
        network = CustomNetwork(function, len(features.mean), part["outputs"])
    assert network is not None
    modules = [_restored(network, _below(f"member.{k}.", tensors)) for k in range(part["members"])]
    scores = np.array([np.inf if s is None else s for s in part["scores"]])
    return FittedPart(
        features,
        [LabelScaler(mean, std) for mean, std in part["labels"]],
        network,
        CrossFit(modules, part["epoch"], scores, tensors["out_of_fold"], part["pooled_tau2"]),
        LabelDiagnostics.from_json(part["story"]),
        part["epsilon"],
    )


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _check_part(tensors: dict[str, Tensor], part: PartJson) -> None:
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
    outputs, story, network = part["outputs"], part["story"], part["network"]
    lists = (story[name] for name in ("factors", "reduced_chi_squared", "unknown_variance"))
    lengths = [len(part["labels"]), len(story["tau2"]), out_of_fold.shape[1]]
    lengths += [len(own) for own in lists if own is not None]
    if set(lengths) != {outputs}:
        raise ValueError(f"every list of outputs must have {outputs}; got {lengths}")
    if len(mean) != len(std) or not bool(mean.isfinite().all() and (std >= 0).all()):
        raise ValueError("features must have finite means and as many standard deviations >= 0")
    if part["epoch"] > len(part["scores"]) or part["scores"][part["epoch"] - 1] is None:
        raise ValueError(f"scores must have one of the chosen epoch, {part['epoch']}")
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


def _restored(network: Network, state: dict[str, Tensor]) -> nn.Module:
    """Return a network with these parameters.

    Raises:
        ValueError: They are not those of this network.
        RuntimeError: Likewise, as torch says it.
    """
    if isinstance(network, MLP):  # before memory is taken for as many as the file says there are
        count = sum(own.numel() for own in state.values())
        if count != network.size or not all(bool(own.isfinite().all()) for own in state.values()):
            raise ValueError(f"a network must have {network.size} finite parameters; got {count}")
    module = network(torch.Generator())
    for name, own in module.state_dict().items():
        if name in state and state[name].dtype != own.dtype:
            raise ValueError(f"{name} must have dtype {own.dtype}; got {state[name].dtype}")
    module.load_state_dict(state)
    return module.eval()
