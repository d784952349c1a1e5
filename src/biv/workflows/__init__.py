"""A table of one's own: what its error bars are worth, a model in a folder, methods compared."""

from biv.workflows.comparison import Comparison, compare
from biv.workflows.inspection import Inspection, inspect
from biv.workflows.model_folder import ModelFolder
from biv.workflows.prediction import write_predictions

__all__ = [
    "Comparison",
    "Inspection",
    "ModelFolder",
    "compare",
    "inspect",
    "write_predictions",
]
