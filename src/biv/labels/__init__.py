r"""Labels and their variances from the processes that real labels come from.

Every function returns :class:`NoisyLabels`, a pair (y, variance): what to learn from and σ² of its
error, in squared units of y. A variance is what makes (y − truth)²/variance one on average, as far
as the process allows; where it is itself estimated from few values, it is larger than the plain
formula by what that uncertainty costs.

Arrays in, arrays out, in float64; tensors in, tensors out.
"""

from biv.labels._bootstrapped import bootstrapped
from biv.labels._counts import count_ratio, counts, log_count_ratio, log_counts, poll
from biv.labels._intervals import asymmetric, interval, plus_minus
from biv.labels._noisy_labels import GroupedLabels, NoisyLabels
from biv.labels._posterior import posterior
from biv.labels._ratings import ratings
from biv.labels._repeats import repeats
from biv.labels._samples import ensemble, samples

__all__ = [
    "GroupedLabels",
    "NoisyLabels",
    "asymmetric",
    "bootstrapped",
    "count_ratio",
    "counts",
    "ensemble",
    "interval",
    "log_count_ratio",
    "log_counts",
    "plus_minus",
    "poll",
    "posterior",
    "ratings",
    "repeats",
    "samples",
]
