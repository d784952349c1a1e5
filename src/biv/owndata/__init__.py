"""A table of one's own: what its error bars are worth, a model in a folder, methods compared."""

from biv.owndata.comparison import Comparison, compare
from biv.owndata.inspection import Inspection, inspect
from biv.owndata.modelfolder import ModelFolder
from biv.owndata.prediction import write_predictions

__all__ = [
    "Comparison",
    "Inspection",
    "ModelFolder",
    "compare",
    "inspect",
    "write_predictions",
]
