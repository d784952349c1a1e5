"""Training: a readable loop over one network, and an engine that trains many at once."""

from biv.training.checkpoint import load_checkpoint, save_checkpoint
from biv.training.crossfit import CrossFit, cross_fit
from biv.training.data import Member, Schedule, Triplets
from biv.training.history import History, smoothed
from biv.training.reference import train_reference
from biv.training.stack import Stack
from biv.training.train import Trained, train_stack

__all__ = [
    "CrossFit",
    "History",
    "Member",
    "Schedule",
    "Stack",
    "Trained",
    "Triplets",
    "cross_fit",
    "load_checkpoint",
    "save_checkpoint",
    "smoothed",
    "train_reference",
    "train_stack",
]
