"""Pages about a table with error bars: for a trained model, and for a comparison of methods."""

from biv.report.model_page.pages import build_comparison_page, build_model_page

__all__ = ["build_comparison_page", "build_model_page"]
