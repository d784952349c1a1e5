"""Network of an output: one of the library, or one that a function of the user returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from biv._utils import validation
from biv.models import MLP, Periodic
from biv.preprocessing.encoder import FeatureEncoder

HIDDEN = (64, 64)  # widths of the hidden layers of an ensemble's network
SCALES = (0.1, 0.25, 0.6)  # of the frequencies of embeddings; large ones suit labels that vary fast
MIN_VALUES = 3  # a numeric feature with fewer distinct values is not embedded
USUAL_RATE = 1e-3
LARGEST_RATE, RATE_OF_ONE_INPUT = 6e-3, 0.06  # for "ensemble"; chosen on noisy held-out labels

NetworkFunction = Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class CustomNetwork:
    """Networks returned by a function of the user, which draws from torch's global generator."""

    function: NetworkFunction
    features: int
    outputs: int

    def __call__(self, generator: torch.Generator) -> nn.Module:
        """Return a new network; the state of the global generator is restored."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(generator.initial_seed())
            module: object = self.function(self.features, self.outputs)
        if not isinstance(module, nn.Module):
            raise TypeError(f"model must return an nn.Module; got {validation.describe(module)}")
        return module


Network = MLP | CustomNetwork


def candidate_networks(
    model: str | NetworkFunction, x: Tensor, encoder: FeatureEncoder
) -> list[Network]:
    """Return the networks of one output from which pilots choose.

    Parameters
    ----------
    model : {"ensemble", "paper"} or callable
        Parameter `model` of :class:`biv.BIVRegressor`.
    x : Tensor of shape (N, F)
        Scaled features.
    encoder : FeatureEncoder
        Encoder that made the columns of x.

    Returns
    -------
    list of Network
        One network, or several that differ in their embeddings.
    """
    features = x.shape[1]
    if not isinstance(model, str):
        return [CustomNetwork(model, features, outputs=1)]
    if model == "paper":
        return [MLP(features)]
    embedded = tuple(k for k in encoder.numeric if len(np.unique(x[:, k].numpy())) >= MIN_VALUES)
    if not embedded:
        return [MLP(features, HIDDEN)]
    embeddings = (Periodic(embedded, frequencies=8, width=8, scale=scale) for scale in SCALES)
    return [MLP(features, HIDDEN, periodic=periodic) for periodic in embeddings]


def default_learning_rate(model: str | NetworkFunction, network: Network) -> float:
    """Return the learning rate of AdamW for a network of this model.

    It is 0.06/√k for an "ensemble" network with k inputs of the first layer, at most 0.006.
    """
    if isinstance(network, CustomNetwork) or model == "paper":
        return USUAL_RATE
    # A step of Adam changes every weight by about the same amount; a unit sums k of these changes.
    return min(LARGEST_RATE, RATE_OF_ONE_INPUT / math.sqrt(network.inputs))
