from ._distributed import accumulation_windows
from ._reduction import LossSums
from .functional import biv_loss, cutoff_loss, iv_loss, l2_loss
from .modules import BIVLoss, CutoffLoss, IVLoss, L2Loss, VarianceLoss
from .weights import cutoff_weights, effective_batch_size, inverse_variance_weights

__all__ = [
    "BIVLoss",
    "CutoffLoss",
    "IVLoss",
    "L2Loss",
    "LossSums",
    "VarianceLoss",
    "accumulation_windows",
    "biv_loss",
    "cutoff_loss",
    "cutoff_weights",
    "effective_batch_size",
    "inverse_variance_weights",
    "iv_loss",
    "l2_loss",
]
