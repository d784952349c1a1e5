"""Train one network in a readable loop, or many small networks at once as a stack."""

from biv.training.checkpoint import load_checkpoint, save_checkpoint
from biv.training.compute import Compute
from biv.training.cross_fitting import CrossFit, cross_fit
from biv.training.data import Member, Triplets
from biv.training.history import History, smoothed
from biv.training.loop import predict_module
from biv.training.schedule import Schedule
from biv.training.stack import Stack
from biv.training.train import Trained, train_module, train_reference, train_stack

__all__ = [
    "Compute",
    "CrossFit",
    "History",
    "Member",
    "Schedule",
    "Stack",
    "Trained",
    "Triplets",
    "cross_fit",
    "load_checkpoint",
    "predict_module",
    "save_checkpoint",
    "smoothed",
    "train_module",
    "train_reference",
    "train_stack",
]
