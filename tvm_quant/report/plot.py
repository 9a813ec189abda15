"""Pictures: the histogram of a tensor with its range, the noise of each layer, a timeline.

Matplotlib draws without a display; the format follows the ending of the file (.png, .svg, .pdf).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.atomic import atomic_write
from tvm_quant.errors import ArtifactError
from tvm_quant.report.evaluate import LayerSqnr

BINS = 200


def plot_histogram(
    path: str | Path,
    values: npt.NDArray[Any],
    *,
    low: float,
    high: float,
    title: str = "",
    weights: npt.NDArray[Any] | None = None,
) -> None:
    """Draw how often values occur, with the range that a grid keeps; what lies outside is clipped.

    Args:
        path: the picture to write.
        values: any shape; the tensor, or the centres of the bins of a histogram.
        low, high: the range of the grid, low < high.
        title: such as the name of the tensor.
        weights: shape of `values`; counts of the bins.

    Raises:
        ArtifactError: the picture cannot be written.
    """
    figure, axes = _figure(8, 3)
    axes.hist(np.ravel(values), BINS, weights=None if weights is None else np.ravel(weights))
    axes.set_yscale("log")
    axes.axvspan(low, high, color="tab:green", alpha=0.15)
    for edge in (low, high):
        axes.axvline(edge, color="tab:green")
    axes.set_title(f"{title}   range {low:.4g} .. {high:.4g}".strip())
    axes.set_xlabel("value")
    axes.set_ylabel("count")
    _save(figure, path)


def plot_layers(path: str | Path, layers: Sequence[LayerSqnr], *, title: str = "") -> None:
    """Draw one bar a layer, its SQNR in dB; the lowest bars are where precision is lost.

    Raises:
        ArtifactError: the picture cannot be written.
    """
    figure, axes = _figure(8, max(2.0, 0.22 * len(layers)))
    finite = [layer for layer in layers if np.isfinite(layer.sqnr_db)]
    axes.barh([layer.node for layer in finite], [layer.sqnr_db for layer in finite])
    axes.invert_yaxis()
    axes.set_xlabel("SQNR, dB")
    axes.set_title(title)
    _save(figure, path)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time in which a unit was busy.

    Attributes:
        row: the unit.
        kind: what it did; one colour each.
        start, end: in cycles.
    """

    row: str
    kind: str
    start: float
    end: float


def plot_timeline(path: str | Path, spans: Sequence[Span], *, title: str = "") -> None:
    """Draw when each unit was busy, one row each, in the order in which they first occur.

    Raises:
        ArtifactError: the picture cannot be written.
    """
    from matplotlib import colormaps

    rows = list(dict.fromkeys(span.row for span in spans))
    kinds: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        kinds[span.kind].append(span)
    figure, axes = _figure(12, 1.4 + 0.5 * len(rows))
    for number, (kind, found) in enumerate(kinds.items()):
        colour = colormaps["tab20"](2 * number % 20 + number // 10 % 2)  # dark ones first
        for place, row in enumerate(rows):
            times = [(span.start, span.end - span.start) for span in found if span.row == row]
            axes.broken_barh(times, (place - 0.4, 0.8), facecolors=colour, label=kind)
            kind = ""  # one line of the legend for all rows
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel("cycles")
    axes.set_title(title)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _save(figure, path)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _save(figure: Any, path: str | Path) -> None:
    suffix = Path(path).suffix.lstrip(".") or "png"
    if suffix not in figure.canvas.get_supported_filetypes():
        kinds = ", ".join(sorted(figure.canvas.get_supported_filetypes()))
        raise ArtifactError(f"cannot draw {path}: no picture format '{suffix}'; choose {kinds}")
    with atomic_write(path) as stream:
        figure.savefig(stream, format=suffix, dpi=120)
