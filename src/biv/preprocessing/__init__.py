"""Features and labels as networks want them: encoded, filled in and scaled."""

from biv.preprocessing.encoder import FeatureEncoder
from biv.preprocessing.scaling import FeatureScaler, LabelScaler

__all__ = ["FeatureEncoder", "FeatureScaler", "LabelScaler"]
