"""A problem shared by several tests of scores."""

import numpy as np
import pytest

from biv.noise import Gamma
from helpers.draws import N


@pytest.fixture(scope="module")
def problem():
    """A model whose error grows with σ², so that weighted and plain errors differ."""
    rng = np.random.default_rng(0)
    y = rng.normal(5.0, 2.0, N)
    variance = Gamma(0.5, 4.0).sample(N, rng)
    pred = y + rng.normal(0, 0.3 + 0.3 * np.sqrt(variance))
    return pred, y, variance
