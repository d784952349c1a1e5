"""Workflows on tables: inspect error bars, compare methods, train a model, predict."""

from biv.workflows.comparison import compare
from biv.workflows.inspection import Inspection, inspect
from biv.workflows.method_comparison import MethodComparison
from biv.workflows.model_folder import ModelFolder
from biv.workflows.prediction import write_predictions
from biv.workflows.train import train_folder

__all__ = [
    "Inspection",
    "MethodComparison",
    "ModelFolder",
    "compare",
    "inspect",
    "train_folder",
    "write_predictions",
]
