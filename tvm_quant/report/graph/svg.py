"""A diagram as SVG: complete without scripts or style sheets of others, with tooltips.

Elements carry the numbers by which the page finds them: `data-box` on boxes, `data-pill`,
`data-group` and `data-adjacent` on quantizers.
"""

from __future__ import annotations

import colorsys
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tvm_quant.report.graph.diagram import Box, Diagram, Pill, Wire
from tvm_quant.report.graph.layout import Layout, lay_out

MARGIN = 24.0
BOX_HEIGHT, NARROW_HEIGHT = 42.0, 26.0
PILL_HEIGHT = 16.0
PORT_GAP = 6.0

LETTER = 6.6
"""Mean width of a letter, px."""

TITLE = 30
"""Letters of a name that are shown."""

BAD_DB, GOOD_DB = 10.0, 45.0
"""SQNR at the ends of the scale of colours, dB."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """An SVG picture with its size in px."""

    svg: str
    width: float
    height: float


def draw(diagram: Diagram) -> Drawing:
    """Lay out a diagram and draw it.

    Example:
        Path("net.svg").write_text(draw(diagram_of(network)).svg)
    """
    ports: dict[int, list[int]] = defaultdict(list)
    for index, wire in enumerate(diagram.wires):
        ports[wire.target].append(index)
    sizes = [
        _size(box, _ports_width([diagram.wires[wire] for wire in ports[index]]))
        for index, box in enumerate(diagram.boxes)
    ]
    layout = lay_out(
        sizes,
        [(wire.source, wire.target) for wire in diagram.wires],
        headroom=[
            PILL_HEIGHT if any(diagram.wires[wire].pill for wire in ports[index]) else 0.0
            for index in range(len(diagram.boxes))
        ],
    )
    entries = _entries(diagram, layout, ports)
    parts = [
        *(
            _wire(wire, sizes, layout, index, entries[index])
            for index, wire in enumerate(diagram.wires)
        ),
        *(
            _box(box, index, sizes[index], layout.centres[index], layout.tops[index])
            for index, box in enumerate(diagram.boxes)
        ),
        *(
            _pill(wire.pill, entries[index], layout.tops[wire.target] - PILL_HEIGHT / 2 - 3)
            for index, wire in enumerate(diagram.wires)
            if wire.pill is not None
        ),
    ]
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="graph" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}" font-family="sans-serif">'
    )
    body = "\n".join(parts)
    svg = f'{head}\n<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">\n{body}\n</g>\n</svg>\n'
    return Drawing(svg=svg, width=width, height=height)


def sqnr_text(db: float) -> str:
    """SQNR as a box shows it.

    >>> sqnr_text(31.24), sqnr_text(math.inf)
    ('31.2 dB', 'exact')
    """
    return "exact" if db == math.inf else f"{db:.1f} dB"


def sqnr_colour(db: float) -> str:
    """From red, at or below `BAD_DB`, over yellow to green, at or above `GOOD_DB`.

    >>> sqnr_colour(10), sqnr_colour(60)
    ('#f4a7a2', '#a2f4a7')
    """
    share = 0.0 if math.isnan(db) else min(max((db - BAD_DB) / (GOOD_DB - BAD_DB), 0.0), 1.0)
    return _colour(share / 3 + 0.01)


def group_colour(group: int) -> str:
    """A colour for each scale group; neighbours differ much."""
    return _colour(0.1 + group * 0.618034, lightness=0.42)


def _colour(hue: float, lightness: float = 0.796, saturation: float = 0.79) -> str:
    red, green, blue = colorsys.hls_to_rgb(hue % 1.0, lightness, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in (red, green, blue))


DARK, GREY = "#1f2328", "#57606a"

STATE_COLOURS: Mapping[str, tuple[str, str]] = {
    "input": ("#e8eaed", "#5f6368"),
    "output": ("#e8eaed", "#5f6368"),
    "integer": ("#e3eefc", "#3b73b9"),
    "mixed": ("#e3eefc", "#b06000"),
    "float": ("#ffffff", "#b06000"),
}
"""{state: (fill, line)} of boxes."""

KIND_COLOURS: Mapping[str, str] = {
    "input": "#00796b",
    "activation": "#1a5fb4",
    "weight": "#7b3fa0",
    "bias": "#5f6368",
}
"""{role: fill} of quantizers."""


def _size(box: Box, ports: float) -> tuple[float, float]:
    upper = max(_text_width(_short(box.title)) + 20, ports)
    if not box.ops:
        return upper, NARROW_HEIGHT
    lower = _text_width(_ops(box)) * 0.9 + 16 + sum(_pill_width(pill) + 4 for pill in box.weights)
    if box.sqnr_db is not None:
        lower += 60
    return max(upper, lower, 90.0), BOX_HEIGHT


def _ports_width(wires: Sequence[Wire]) -> float:
    return sum(_port_width(wire) for wire in wires)


def _port_width(wire: Wire) -> float:
    return PORT_GAP + (_pill_width(wire.pill) if wire.pill is not None else 24.0)


def _pill_width(pill: Pill) -> float:
    return 14.0 + 6.0 * len(_pill_text(pill))


def _pill_text(pill: Pill) -> str:
    return pill.code if pill.group is None else f"{pill.code} g{pill.group}"


def _text_width(text: str) -> float:
    return LETTER * len(text)


def _ops(box: Box) -> str:
    return " + ".join(box.ops)


def _short(name: str) -> str:
    half = TITLE // 2 - 1
    return name if len(name) <= TITLE else f"{name[:half]}…{name[-half:]}"


def _entries(
    diagram: Diagram, layout: Layout, ports: Mapping[int, Sequence[int]]
) -> dict[int, float]:
    """{wire: x where it enters its box}: side by side, in the order in which they arrive."""
    found = {}
    for target, wires in ports.items():
        arriving = sorted(wires, key=lambda wire: _last_x(diagram, layout, wire))
        widths = [_port_width(diagram.wires[wire]) for wire in arriving]
        left = layout.centres[target] - sum(widths) / 2
        for wire, width in zip(arriving, widths, strict=True):
            found[wire] = left + width / 2
            left += width
    return found


def _last_x(diagram: Diagram, layout: Layout, wire: int) -> float:
    lanes = layout.lanes[wire]
    return lanes[-1][0] if lanes else layout.centres[diagram.wires[wire].source]


def _wire(
    wire: Wire,
    sizes: Sequence[tuple[float, float]],
    layout: Layout,
    index: int,
    entry: float,
) -> str:
    x, y = layout.centres[wire.source], layout.tops[wire.source] + sizes[wire.source][1]
    path = [f"M{x:.1f} {y:.1f}"]
    for lane, top, bottom in layout.lanes[index]:
        path.append(_curve(x, y, lane, top) + f"V{bottom:.1f}")
        x, y = lane, bottom
    top = layout.tops[wire.target]
    path.append(_curve(x, y, entry, top - (PILL_HEIGHT if wire.pill else 0)) + f"V{top:.1f}")
    return _tag(
        "path",
        class_="wire",
        data_from=wire.source,
        data_to=wire.target,
        d="".join(path),
        fill="none",
        stroke="#7d8590",
        stroke_width=1.4,
        stroke_dasharray="5 3" if wire.in_float else None,
    )


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    if abs(x - to_x) < 0.5:
        return f"L{to_x:.1f} {to_y:.1f}"
    middle = (y + to_y) / 2
    return f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"


def _box(box: Box, index: int, size: tuple[float, float], centre: float, top: float) -> str:
    width, height = size
    left = centre - width / 2
    fill, line = STATE_COLOURS[box.state]
    frame = _tag(
        "rect",
        x=left,
        y=top,
        width=width,
        height=height,
        rx=5,
        fill=fill if box.sqnr_db is None else sqnr_colour(box.sqnr_db),
        stroke=line,
        stroke_width=1.3,
        stroke_dasharray="6 3" if box.reasons else None,
    )
    name = _text(_short(box.title), centre, top + 17, 12, DARK, text_anchor="middle")
    parts = [_tag("title", escape(_box_title(box))), frame, name]
    if box.ops:
        parts += _lower_line(box, left, top + BOX_HEIGHT - 9, width)
    return _tag("g", "\n".join(parts), class_=f"box {box.state}", data_box=index)


def _lower_line(box: Box, left: float, y: float, width: float) -> list[str]:
    """Operators on the left; noise and the quantizers of weights on the right."""
    parts = [_text(_ops(box), left + 8, y, 10.5, GREY)]
    right = left + width - 4
    for pill in reversed(box.weights):
        parts.append(_pill(pill, right - _pill_width(pill) / 2, y - 4))
        right -= _pill_width(pill) + 4
    if box.sqnr_db is not None:
        noise = sqnr_text(box.sqnr_db)
        bold = {"text_anchor": "end", "font_weight": "bold"}
        parts.append(_text(noise, right - 4, y, 10.5, DARK, **bold))
    return parts


def _box_title(box: Box) -> str:
    lines = [box.title, _ops(box), box.shape, *(f"float: {reason}" for reason in box.reasons)]
    if box.sqnr_db is not None:
        lines.append(f"SQNR {sqnr_text(box.sqnr_db)}")
    return "\n".join(line for line in lines if line)


def _pill(pill: Pill, x: float, y: float) -> str:
    grouped = pill.group is not None
    lines = [pill.place, *(f"{name}: {fact}" for name, fact in pill.facts.items())]
    if grouped:
        lines.append(f"one scale with group {pill.group}")
    frame = _tag(
        "rect",
        x=x - _pill_width(pill) / 2,
        y=y - PILL_HEIGHT / 2,
        width=_pill_width(pill),
        height=PILL_HEIGHT,
        rx=8,
        fill=KIND_COLOURS[pill.kind],
        stroke=group_colour(pill.group) if pill.group is not None else "#ffffff",
        stroke_width=2.5 if grouped else 1,
    )
    text = _text(_pill_text(pill), x, y + 3.5, 10, "#ffffff", text_anchor="middle")
    return _tag(
        "g",
        _tag("title", escape("\n".join(lines))) + frame + text,
        class_="pill",
        data_pill=pill.place,
        data_group=pill.group,
        data_adjacent=pill.adjacent,
    )


def _text(text: str, x: float, y: float, size: float, fill: str, **more: str) -> str:
    return _tag("text", escape(text), x=x, y=y, font_size=size, fill=fill, **more)


def _tag(name: str, content: str = "", **attributes: str | float | None) -> str:
    """An element; attributes that are None are left out, and "_" in their names is "-".

    >>> _tag("rect", x=1.26, rx=5, stroke_width=None, class_="a")
    '<rect x="1.3" rx="5" class="a"/>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return escape(value)
    return f"{value:.1f}".removesuffix(".0")
