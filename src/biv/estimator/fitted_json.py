"""Conversion of a fitted model to tensors and JSON, and back with checks of all numbers."""

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
    """JSON form of a :class:`FittedPart`; `network` is null if a function of the user made it."""

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
    """JSON form of the fields that all parts of a :class:`Fitted` share."""

    single: bool
    calibrated: bool
    columns: list[dict[str, Any]]


def to_json(fitted: Fitted) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a fitted model as tensors and JSON; :func:`from_json` reads them.

    A model of one part has the fields of version 0.1. Several parts are stored in a list, and the
    names of their tensors begin with the number of the part.
    """
    content = {
        "single": fitted.single,
        "calibrated": bool(fitted.calibrated),
        "columns": fitted.encoder.to_json(),
    }
    parts = [_part_to_json(part) for part in fitted.parts]
    if len(parts) == 1:
        return parts[0][0], content | parts[0][1]
    tensors: dict[str, Tensor] = {}
    for number, (part_tensors, _) in enumerate(parts):
        tensors |= {f"output.{number}.{name}": tensor for name, tensor in part_tensors.items()}
    network = parts[0][1]["network"]
    return tensors, content | {"network": network, "parts": [part for _, part in parts]}


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

    Parameters
    ----------
    tensors : dict of Tensor
        Tensors by their names.
    content : dict
        JSON.
    function : callable or None, default=None
        Function of the user that made the networks, if one did.

    Returns
    -------
    Fitted
        The fitted model.

    Raises
    ------
    ValueError
        A field is missing, has an invalid type or contradicts another.
    """
    parts = [(tensors, content)]
    if "parts" in content:
        listed = typed_json.convert(content["parts"], list[dict[str, Any]])
        parts = [(_below(f"output.{number}.", tensors), part) for number, part in enumerate(listed)]
    common = typed_json.convert(content, FittedJson)
    fitted = Fitted(
        common["single"],
        FeatureEncoder.from_json(common["columns"]),
        [_part_from_json(*part, function) for part in parts],
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
    """Return the tensors whose names begin with a prefix, under their names without it."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _check_part(tensors: dict[str, Tensor], part: PartJson) -> None:
    """Check that the numbers of a file agree with each other, which their types cannot show.

    Raises
    ------
    ValueError
        Two numbers contradict each other.
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
    outputs, diagnostics, network = part["outputs"], part["story"], part["network"]
    lists = (diagnostics[name] for name in ("factors", "reduced_chi_squared", "unknown_variance"))
    lengths = [len(part["labels"]), len(diagnostics["tau2"]), out_of_fold.shape[1]]
    lengths += [len(values) for values in lists if values is not None]
    if set(lengths) != {outputs}:
        raise ValueError(f"every list must have one entry per output ({outputs}); got {lengths}")
    if len(mean) != len(std) or not bool(mean.isfinite().all() and (std >= 0).all()):
        raise ValueError(
            "features must have one finite mean and one standard deviation >= 0 per feature"
        )
    if part["epoch"] > len(part["scores"]) or part["scores"][part["epoch"] - 1] is None:
        raise ValueError(f"scores must have a finite score for the chosen epoch, {part['epoch']}")
    if network is not None and (network.features, network.outputs) != (len(mean), outputs):
        raise ValueError(
            f"the network must have {len(mean)} features and {outputs} outputs; got "
            f"{network.features} and {network.outputs}"
        )


def _check_fitted(fitted: Fitted) -> None:
    """Check that all parts have the features of the table, and that a single output is alone.

    Raises
    ------
    ValueError
        The parts do not fit together.
    """
    matrix = len(fitted.encoder.names([""] * len(fitted.encoder.columns)))
    features = {len(part.features.mean) for part in fitted.parts}
    if features != {matrix}:
        raise ValueError(f"the networks must have {matrix} features; got {sorted(features)}")
    rows = {len(part.ensemble.out_of_fold) for part in fitted.parts}
    if len(rows) != 1 or (fitted.single and len(fitted.labels) != 1):
        raise ValueError(
            "all outputs must have the same rows, and a y of one dimension must have one output; "
            f"got {sorted(rows)} rows and {len(fitted.labels)} outputs"
        )


def _restored(network: Network, state: dict[str, Tensor]) -> nn.Module:
    """Return a network with these parameters.

    Raises
    ------
    ValueError
        The parameters are not those of this network.
    RuntimeError
        Torch finds that the parameters are not those of this network.
    """
    if isinstance(network, MLP):  # checked before memory of the size that the file states is used
        count = sum(tensor.numel() for tensor in state.values())
        if count != network.size or not all(bool(t.isfinite().all()) for t in state.values()):
            raise ValueError(f"a network must have {network.size} finite parameters; got {count}")
    module = network(torch.Generator())
    for name, tensor in module.state_dict().items():
        if name in state and state[name].dtype != tensor.dtype:
            raise ValueError(f"{name} must have dtype {tensor.dtype}; got {state[name].dtype}")
    module.load_state_dict(state)
    return module.eval()
