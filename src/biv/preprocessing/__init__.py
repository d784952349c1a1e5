"""Prepare features and labels for networks: encode categories, fill gaps and scale."""

from biv.preprocessing.encoder import FeatureEncoder
from biv.preprocessing.scaling import FeatureScaler, LabelScaler

__all__ = ["FeatureEncoder", "FeatureScaler", "LabelScaler"]
