"""The graph page: one HTML file that needs no network, with the drawing and what it says inside."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from tvm_quant.atomic import atomic_write
from tvm_quant.report.graph.diagram import Box, Diagram, Pill
from tvm_quant.report.graph.svg import (
    BAD_DB,
    GOOD_DB,
    KIND_COLOURS,
    MARGIN,
    STATE_COLOURS,
    Drawing,
    draw,
    sqnr_colour,
    sqnr_text,
)

HERE = Path(__file__).parent
CODE = (
    "8ANu: 8 bit, A or S asymmetric or symmetric, N or C per tensor or channel, u or s unsigned "
    "or signed, n narrow. A ring and g0, g1, ... mark quantizers with one scale."
)
NOTES = ("A solid wire carries integers, a dashed one float.", CODE)
STATES = {
    "integer": "runs on integers",
    "mixed": "partly stays in float",
    "float": "stays in float",
}


def write_graph(
    path: str | Path, diagram: Diagram, *, title: str, facts: Mapping[str, str] | None = None
) -> None:
    """Write the page, replacing an older one at once or not at all.

    Args:
        path: the .html file.
        diagram: what to show.
        title: such as the name of the artifact.
        facts: {what: in words} of the network, for the panel.

    Raises:
        ArtifactError: it cannot be written there.

    Example:
        write_graph("net.html", diagram_of(network_of(mod)), title="net")
    """
    page = graph_page(diagram, title=title, facts=facts)
    with atomic_write(path) as stream:
        stream.write(page.encode())


def graph_page(diagram: Diagram, *, title: str, facts: Mapping[str, str] | None = None) -> str:
    """The page as `write_graph` writes it; equal diagrams give equal pages."""
    drawing = draw(diagram)
    data = _data(diagram, drawing, facts or {})
    return Template(_part("page.html")).substitute(
        title=escape(title),
        style=_part("page.css"),
        svg=drawing.svg,
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        script=_part("page.js"),
    )


def _part(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8").rstrip("\n")


def _data(diagram: Diagram, drawing: Drawing, facts: Mapping[str, str]) -> dict[str, Any]:
    pills: dict[int, list[Pill]] = defaultdict(list)
    for wire in diagram.wires:
        if wire.pill is not None:
            pills[wire.target].append(wire.pill)
    for index, box in enumerate(diagram.boxes):
        pills[index] += box.weights
    measured = any(box.sqnr_db is not None for box in diagram.boxes)
    return {
        "width": round(drawing.width),
        "height": round(drawing.height),
        "margin": MARGIN,
        "facts": list(facts.items()),
        "boxes": [_box(box, pills[index]) for index, box in enumerate(diagram.boxes)],
        "wires": [{"source": wire.source, "target": wire.target} for wire in diagram.wires],
        "pills": {
            pill.place: asdict(pill) | {"box": index}
            for index in range(len(diagram.boxes))
            for pill in pills[index]
        },
        "legend": _legend(measured),
        "notes": NOTES,
        "scale": _scale() if measured else None,
    }


def _box(box: Box, pills: list[Pill]) -> dict[str, Any]:
    places = sorted(dict.fromkeys(pill.place for pill in pills))
    known = box.sqnr_db is not None
    return {
        "title": box.title,
        "ops": box.ops,
        "state": box.state,
        "shape": box.shape,
        "reasons": box.reasons,
        "pills": places,
        "sqnr": sqnr_text(box.sqnr_db) if box.sqnr_db is not None else None,
        "sqnr_db": box.sqnr_db if known and math.isfinite(box.sqnr_db or 0.0) else None,
    }


def _legend(measured: bool) -> list[tuple[str, str, str, bool]]:
    """(text, fill, line, whether dashed)."""
    states = [
        (text + (", not measured" if measured and state == "integer" else ""), state)
        for state, text in STATES.items()
    ]
    return [
        *((text, *STATE_COLOURS[state], state != "integer") for text, state in states),
        *(
            (f"quantizer of {kind}", colour, "#ffffff", False)
            for kind, colour in KIND_COLOURS.items()
            if kind != "bias"
        ),
    ]


def _scale() -> dict[str, Any]:
    steps = [BAD_DB + (GOOD_DB - BAD_DB) * step / 6 for step in range(7)]
    return {
        "colours": [sqnr_colour(db) for db in steps],
        "ends": [f"{BAD_DB:.0f} dB", f"{GOOD_DB:.0f} dB"],
    }
