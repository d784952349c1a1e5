"""The page about a table with error bars: of a trained model, or of a comparison of methods."""

from biv.report.model_page.pages import of_comparison, of_model

__all__ = ["of_comparison", "of_model"]
