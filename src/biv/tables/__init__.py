"""Tables with a label column and its error bars: files, columns, targets."""

from biv.tables.dataset import Dataset
from biv.tables.labelled import LabelledTable, read_table
from biv.tables.target import Target

__all__ = ["Dataset", "LabelledTable", "Target", "read_table"]
