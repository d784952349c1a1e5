"""The paper's networks as ordinary modules, and many networks computed as one."""

from biv.models.embeddings import Periodic, PeriodicEmbedding
from biv.models.mlp import MLP
from biv.models.resnet import ResNet18, Standardise
from biv.models.stacked import Stacked

__all__ = ["MLP", "Periodic", "PeriodicEmbedding", "ResNet18", "Stacked", "Standardise"]
