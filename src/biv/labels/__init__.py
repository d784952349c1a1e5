r"""Labels and their variances, computed from the processes that real labels come from.

Every function returns :class:`NoisyLabels`, a pair (y, variance). y holds the labels to learn from.
`variance` holds σ², the variance of each label's error, in squared units of y. It is chosen so that
(y − truth)²/variance is 1 on average, as far as the process allows. Where σ² is itself estimated
from few values, it is larger than the plain formula, to account for that uncertainty.

Arrays give float64 arrays. Tensors give tensors.
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
