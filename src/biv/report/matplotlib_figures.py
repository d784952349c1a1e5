"""Style of all Matplotlib figures, and a function that saves them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biv._utils.atomic_files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "svg.hashsalt": "biv",  # equal figures give equal files
    "svg.fonttype": "none",
}


def save_figure(
    figure: Figure, path: Path, *, dpi: float | str = "figure", replace: bool = True
) -> None:
    """Save a figure, complete or not at all, in the format given by the suffix of the path.

    See :func:`biv._utils.atomic_files.write_atomically`.
    """
    import matplotlib as mpl

    buffer = io.BytesIO()
    file_format = path.suffix[1:].lower()
    metadata: Any = {"Date": None} if file_format == "svg" else None
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=file_format, dpi=dpi, metadata=metadata)
    write_atomically(path, buffer.getvalue(), replace=replace)
