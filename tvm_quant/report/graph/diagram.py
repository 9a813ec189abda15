"""What the graph page shows: a box a node of the model, a wire a tensor, quantizers on both.

A call that alone reads another call of the same node, without a quantizer between, shares its box:
a convolution and its bias are one node to the user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvm_quant.artifact import Call, Network, Port, QuantizerRow
from tvm_quant.hardware import Grid
from tvm_quant.report.adjacency import adjacency_groups
from tvm_quant.report.evaluate import LayerSqnr
from tvm_quant.report.inspect import short_op, span
from tvm_quant.report.text import call_labels, group_numbers

INPUT, OUTPUT = "input", "output"


@dataclass(frozen=True, kw_only=True)
class Pill:
    """A quantizer at a port.

    Attributes:
        name: of the quantizer; ports with the same one share it.
        place: call and port, "conv1:0".
        code: of the grid, see `Grid`.
        kind: role of the tensor.
        facts: {what: in words} of grid, scale, zero point and range.
        group: number of its scale group; None without.
        adjacent: number of its adjacency group; None if its call is in float.
    """

    name: str
    place: str
    code: str
    kind: str
    facts: Mapping[str, str]
    group: int | None
    adjacent: int | None


@dataclass(frozen=True, kw_only=True)
class Box:
    """A node.

    Attributes:
        title: name of the node.
        ops: its operators, short.
        state: "input", "output", "integer", "float", or "mixed" if some of its calls stay in float.
        shape: of the result, in words.
        reasons: why calls of it stay in float.
        weights: quantizers of its constants.
        sqnr_db: noise in its result; None if not measured.
    """

    title: str
    ops: tuple[str, ...] = ()
    state: str = "integer"
    shape: str = ""
    reasons: tuple[str, ...] = ()
    weights: tuple[Pill, ...] = ()
    sqnr_db: float | None = None


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A tensor on its way.

    Attributes:
        source, target: boxes, by index.
        pill: quantizer at its end; None without.
        in_float: whether it leaves its source in float.
    """

    source: int
    target: int
    pill: Pill | None = None
    in_float: bool = False


@dataclass(frozen=True, kw_only=True)
class Diagram:
    """Boxes in execution order, so that wires lead to later boxes."""

    boxes: Sequence[Box]
    wires: Sequence[Wire]


def diagram_of(
    network: Network,
    rows: Mapping[tuple[str, int], QuantizerRow] | None = None,
    layers: Sequence[LayerSqnr] = (),
) -> Diagram:
    """The diagram of a network.

    Args:
        network: what to draw.
        rows: of the calibration table by (variable, port), see `placed_rows`; scales come from it.
        layers: noise that was measured, by node.
    """
    return _Drawer(network, rows or {}, layers).diagram()


class _Drawer:
    def __init__(
        self,
        network: Network,
        rows: Mapping[tuple[str, int], QuantizerRow],
        layers: Sequence[LayerSqnr],
    ):
        self.network = network
        self.rows = rows
        self.labels = call_labels(network)
        self.groups = group_numbers(network)
        self.adjacent = adjacency_groups(network)
        self.layers = layers
        self.floats = {
            call.variable
            for call in (*network.inputs, *network.calls)
            if call.op == INPUT or call.reason is not None
        }
        self.box_of: dict[str, int] = {}
        self.members: list[list[Call]] = []

    def diagram(self) -> Diagram:
        self._group()
        noise = self._noise()
        boxes = [self._box(calls, noise.get(index)) for index, calls in enumerate(self.members)]
        wires = [
            self._wire(name, target, self._pill(call, port))
            for target, calls in enumerate(self.members)
            for call in calls
            for port in call.ports
            for name in port.reads
            if self.box_of[name] != target
        ]
        for number, name in enumerate(self.network.results):
            wires.append(self._wire(name, len(boxes), None))
            boxes.append(Box(title=f"output {number}", state=OUTPUT))
        return Diagram(boxes=boxes, wires=wires)

    def _group(self) -> None:
        uses = Counter(name for call in self.network.calls for name in _reads(call))
        uses.update(self.network.results)
        for call in (*self.network.inputs, *self.network.calls):
            box = self._continued(call, uses)
            if box is None:
                box = len(self.members)
                self.members.append([])
            self.members[box].append(call)
            self.box_of[call.variable] = box

    def _continued(self, call: Call, uses: Mapping[str, int]) -> int | None:
        """The box that a call of the same node has begun, if nothing else reads its result."""
        reads = _reads(call)
        if len(reads) != 1 or uses[reads[0]] > 1:
            return None
        if any(port.quantizer for port in call.ports if port.reads):
            return None
        box = self.box_of[reads[0]]
        before = self.members[box][-1]
        return box if (before.node, before.op != INPUT) == (call.node, True) else None

    def _noise(self) -> dict[int, float]:
        """{box: SQNR}: the last box of the node, better one with the operator of the layer.

        Its operator may be that of a bias, which is a node of its own in some models.
        """
        found = {}
        for layer in self.layers:
            boxes = [i for i, calls in enumerate(self.members) if calls[-1].node == layer.node]
            exact = [i for i in boxes if layer.op in (call.op for call in self.members[i])]
            for index in (exact or boxes)[-1:]:
                found[index] = layer.sqnr_db
        return found

    def _wire(self, name: str, target: int, pill: Pill | None) -> Wire:
        return Wire(
            source=self.box_of[name], target=target, pill=pill, in_float=name in self.floats
        )

    def _box(self, calls: Sequence[Call], sqnr_db: float | None) -> Box:
        first, last = calls[0], calls[-1]
        if first.op == INPUT:
            return Box(title=first.node, state=INPUT, shape=_shape(first))
        reasons = dict.fromkeys(call.reason for call in calls if call.reason is not None)
        return Box(
            title=last.node,
            ops=tuple(short_op(call.op) or call.op for call in calls),
            state=_state(calls),
            shape=_shape(last),
            reasons=tuple(reasons),
            weights=tuple(
                pill
                for call in calls
                for port in call.ports
                if not port.reads and (pill := self._pill(call, port)) is not None
            ),
            sqnr_db=sqnr_db,
        )

    def _pill(self, call: Call, port: Port) -> Pill | None:
        quantizer = port.quantizer
        if quantizer is None:
            return None
        row = self.rows.get((call.variable, port.number))
        return Pill(
            name=quantizer.variable,
            place=f"{self.labels[call.variable]}:{port.number}",
            code=str(Grid.of(quantizer.spec)),
            kind=quantizer.kind.value,
            facts=dict(_facts(port, row)),
            group=self.groups.get(quantizer.group),
            adjacent=self.adjacent.get(quantizer.variable),
        )


def _state(calls: Sequence[Call]) -> str:
    in_float = [call.reason is not None for call in calls]
    return "float" if all(in_float) else "mixed" if any(in_float) else "integer"


def _reads(call: Call) -> list[str]:
    return [name for port in call.ports for name in port.reads]


def _shape(call: Call) -> str:
    if call.shape is None:
        return ""
    return " x ".join("?" if size is None else str(size) for size in call.shape)


def _facts(port: Port, row: QuantizerRow | None) -> Iterator[tuple[str, str]]:
    assert port.quantizer is not None
    spec = port.quantizer.spec
    yield "reads", port.tensor
    yield "role", port.quantizer.kind.value
    sign = "signed" if spec.signed else "unsigned"
    yield "grid", f"{spec.bits} bit {sign}, codes {spec.qmin} .. {spec.qmax}"
    yield "zero", "symmetric, fixed" if spec.symmetric else "asymmetric"
    yield "scales", "per tensor" if spec.axis is None else f"per channel, axis {spec.axis}"
    if row is None or row.scale is None or row.zero_point is None:
        return
    channels = f" ({len(row.scale)} channels)" if len(row.scale) > 1 else ""
    yield "scale", span(row.scale, "{:.4g}") + channels
    yield "zero point", span(row.zero_point, "{}")
    yield "range", f"{row.low:.4g} .. {row.high:.4g}"
