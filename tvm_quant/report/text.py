"""The quantizers of a network as text that can be compared: one line each, no measured numbers.

    stem.conv:0 conv2d 8ANu input <- image
    stem.conv:1 conv2d 8SCsn weight <- constant, axis 0
    cat:1 concat 8ANu activation <- branch2.relu, group 0

A line holds the port and operator that read the quantizer, its grid (see `Grid`), the role of
the tensor, and where the tensor comes from. Where several calls have the name of one node, the
second is `name#2`. Quantizers of one group have one scale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tvm_quant.artifact import Call, Network, Port, QuantizerRow, placed_rows
from tvm_quant.hardware import Grid
from tvm_quant.op import NO_GROUP, QuantSpec
from tvm_quant.report.inspect import short_op, span

Scales = Mapping[tuple[str, int], QuantizerRow]


def quantizer_text(network: Network, table: Sequence[QuantizerRow] = ()) -> str:
    """One line for each quantizer, in execution order, by port within a call.

    Equal networks that are placed alike give equal text on every machine.

    Args:
        network: as `network_of` reads it off a module, or an artifact holds it.
        table: rows of the calibration table, to add scales of three digits and zero points. These
            may differ between machines.

    Raises:
        ArtifactError: the table is not that of the network.

    Example:
        print(quantizer_text(network_of(Annotate()(mod))))
    """
    scales = placed_rows(network, table) if table else {}
    groups = group_numbers(network)
    labels = call_labels(network)
    lines = [
        _line(labels[call.variable], call, port, groups, scales)
        for call in network.calls
        for port in call.ports
        if port.quantizer is not None
    ]
    return "".join(f"{line}\n" for line in lines)


def call_labels(network: Network) -> dict[str, str]:
    """{variable: label} of the calls: the name of the node, "name#2" for its second call."""
    seen: Counter[str] = Counter()
    labels = {}
    for call in network.calls:
        seen[call.node] += 1
        count = seen[call.node]
        labels[call.variable] = call.node if count == 1 else f"{call.node}#{count}"
    return labels


def group_numbers(network: Network) -> dict[int, int]:
    """{number in the module: number in reports}: groups count from 0 in the order they appear."""
    found = [
        port.quantizer.group
        for call in network.calls
        for port in call.ports
        if port.quantizer is not None and port.quantizer.group != NO_GROUP
    ]
    return {group: index for index, group in enumerate(dict.fromkeys(found))}


def _line(label: str, call: Call, port: Port, groups: Mapping[int, int], scales: Scales) -> str:
    assert port.quantizer is not None
    quantizer = port.quantizer
    place = f"{label}:{port.number} {short_op(call.op)}"
    head = f"{place} {Grid.of(quantizer.spec)} {quantizer.kind.value} <- {port.tensor}"
    row = scales.get((call.variable, port.number))
    return ", ".join([head, *_details(quantizer.spec, groups.get(quantizer.group)), *_scale(row)])


def _details(spec: QuantSpec, group: int | None) -> Iterator[str]:
    if spec.axis is not None:
        yield f"axis {spec.axis}" + (f" in {spec.groups} blocks" if spec.groups > 1 else "")
    if group is not None:
        yield f"group {group}"


def _scale(row: QuantizerRow | None) -> Iterator[str]:
    if row is None:
        return
    if row.scale is None or row.zero_point is None:
        yield "not calibrated"
        return
    yield f"scale {span(row.scale, '{:.3g}')}"
    yield f"zero {span(row.zero_point, '{}')}"
