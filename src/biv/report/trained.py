"""What must be said beside the scores of a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biv.estimator.findings import VOIDING
from biv.report.inspection import disagreement
from biv.workflows.relation import RELATED

VOID = "The scores rest on these error bars: until this is resolved, they mean nothing."


def caveats(result: Mapping[str, Any]) -> list[str]:
    """Sentences, none where the scores can be taken as they are.

    Args:
        result: What a fit found out, as a model folder keeps it.
    """
    kind = (result.get("finding") or {}).get("kind")
    if kind in VOIDING:
        return [VOID]
    names = ("r2", "r2_stderr", "r2_all_labels_alike", "r2_all_labels_alike_stderr")
    r2 = [float("nan") if result.get(name) is None else result[name] for name in names]
    said = disagreement(*r2)
    if kind != "few" and abs(result["rank_correlation_with_label"]) >= RELATED:
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
