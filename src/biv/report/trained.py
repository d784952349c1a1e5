"""What must be said beside the scores of a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biv.errorbars import is_impossible
from biv.owndata.impossible import TOO_LARGE
from biv.owndata.relation import RELATED
from biv.report.inspection import factor_text


def are_right(result: Mapping[str, Any]) -> str:
    """What the residuals say about the error bars, of which there must be some."""
    return factor_text(
        result["variance_factor"],
        result["variance_factor_interval"],
        too_large=is_impossible(result["mse"], result["mse_stderr"]),
    )


def caveats(result: Mapping[str, Any]) -> list[str]:
    """Sentences, none where the scores can be taken as they are.

    Args:
        result: What a fit found out, as a model folder keeps it.
    """
    said = []
    if is_impossible(result["mse"], result["mse_stderr"]):
        said.append(TOO_LARGE)
    if abs(result["rank_correlation_with_label"]) >= RELATED:
        said.append(
            "Error bars go with the label (rank correlation "
            f"{result['rank_correlation_with_label']:+.2f}), so that these scores tell of one end "
            "of the labels more than of the other. With all labels alike, the squared error is "
            f"{result['mse_all_labels_alike']:.4g} ± {result['mse_all_labels_alike_stderr']:.2g}, "
            "if the large error bars are right. Were error bars computed from the noisy labels, as "
            "√n of a count n is, then weighting pulls predictions to one side: biv compare tells "
            "whether to use them."
        )
    return said
