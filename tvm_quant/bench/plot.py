"""Pictures of measurements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tvm_quant.atomic import atomic_write


def draw_speed(path: Path, ratios: Mapping[str, Mapping[str, float]]) -> None:
    """Bars of how many times longer than tvm_quant in int8 each system takes.

    Args:
        path: of the picture; its suffix is the format, PNG or SVG.
        ratios: {network: {system: ratio}}.
    """
    from matplotlib.figure import Figure

    networks, systems = list(ratios), list(next(iter(ratios.values())))
    figure = Figure(figsize=(2 + 1.2 * len(networks), 4), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(systems)
    for index, system in enumerate(systems):
        places = [place + index * width for place in range(len(networks))]
        axes.bar(places, [ratios[name].get(system, 0.0) for name in networks], width, label=system)
    axes.axhline(1.0, color="black", linewidth=0.8)
    centre = 0.4 - width / 2
    axes.set_xticks([place + centre for place in range(len(networks))], networks, rotation=30)
    axes.set_ylabel("time, tvm_quant int8 = 1")
    axes.legend()
    with atomic_write(path) as stream:
        figure.savefig(stream, format=path.suffix.removeprefix(".") or "png")
