"""The network as a report draws it: its calls, what each reads, and where quantizers stand.

It is read off the annotated or calibrated module and kept in the artifact as plain JSON, so that a
picture needs neither the float weights nor the model file. Scales stand in the calibration table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import IRModule, relax

from tvm_quant.artifact.table import QuantizerRow
from tvm_quant.errors import ArtifactError, ConfigError
from tvm_quant.ir import node_name, op_name, tensor_shape
from tvm_quant.ir.bindings import flat_operands
from tvm_quant.ir.reasons import float_reasons
from tvm_quant.ir.signature import main_function
from tvm_quant.op import NO_GROUP, Kind, QuantSpec, group_of, is_simulated, kind_of, spec_of

Shape = tuple[int | None, ...]

BRANCH = "if"
"""What stands for the operator of a branch, which is drawn as one call."""

CONSTANT = "constant"
"""What stands for the tensor of a port that reads a constant."""


@dataclass(frozen=True, kw_only=True)
class PlacedQuantizer:
    """A quantizer at a port.

    Attributes:
        variable: of the quantizer; ports with the same one share it.
        kind: role of the tensor.
        spec: the grid.
        group: number of the group whose quantizers have one scale, or `NO_GROUP`.
    """

    variable: str
    kind: Kind
    spec: QuantSpec
    group: int = NO_GROUP

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        grid = self.spec.to_attrs()
        return {"variable": self.variable, "kind": self.kind.value, "group": self.group} | grid

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PlacedQuantizer:
        """Inverse of `to_dict`."""
        return cls(
            variable=values["variable"],
            kind=Kind(values["kind"]),
            spec=QuantSpec.from_attrs(values),
            group=values["group"],
        )


@dataclass(frozen=True, kw_only=True)
class Port:
    """An operand that is a tensor of the network, or a constant with a quantizer.

    Attributes:
        number: of the operand, counted with tuples flattened.
        reads: variables of the inputs and calls that the operand comes from; none for a constant.
        tensor: name of the node or input it comes from, or "constant".
        quantizer: between tensor and port; None where there is none.
    """

    number: int
    reads: tuple[str, ...]
    tensor: str
    quantizer: PlacedQuantizer | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        values = {"number": self.number, "reads": list(self.reads), "tensor": self.tensor}
        return values | ({"quantizer": self.quantizer.to_dict()} if self.quantizer else {})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Port:
        """Inverse of `to_dict`."""
        quantizer = values.get("quantizer")
        return cls(
            number=values["number"],
            reads=tuple(values["reads"]),
            tensor=values["tensor"],
            quantizer=PlacedQuantizer.from_dict(quantizer) if quantizer else None,
        )


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call, or an input of the network.

    Attributes:
        variable: bound to the call, unique.
        node: name of the node as the model file has it; several calls may have one.
        op: operator, such as "relax.nn.conv2d"; "input" for an input, "if" for a branch.
        shape: of the result, None for a symbolic dimension; None if it is no tensor of known rank.
        ports: in order.
        reason: why the call stays in float; None if it does not.
    """

    variable: str
    node: str
    op: str
    shape: Shape | None = None
    ports: tuple[Port, ...] = ()
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        values: dict[str, Any] = {"variable": self.variable, "node": self.node, "op": self.op}
        if self.shape is not None:
            values["shape"] = list(self.shape)
        if self.ports:
            values["ports"] = [port.to_dict() for port in self.ports]
        return values | ({"reason": self.reason} if self.reason is not None else {})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Call:
        """Inverse of `to_dict`."""
        shape = values.get("shape")
        return cls(
            variable=values["variable"],
            node=values["node"],
            op=values["op"],
            shape=None if shape is None else tuple(shape),
            ports=tuple(Port.from_dict(port) for port in values.get("ports", ())),
            reason=values.get("reason"),
        )


@dataclass(frozen=True, kw_only=True)
class Network:
    """Inputs, calls in execution order, and the variables that are returned."""

    inputs: tuple[Call, ...]
    calls: tuple[Call, ...]
    results: tuple[str, ...]

    def __post_init__(self) -> None:
        known = {call.variable for call in self.inputs}
        for call in self.calls:
            unknown = [name for port in call.ports for name in port.reads if name not in known]
            if unknown:
                raise ArtifactError(
                    f"the network is damaged: '{call.variable}' reads '{unknown[0]}', which no "
                    "call before it computes"
                )
            known.add(call.variable)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "inputs": [call.to_dict() for call in self.inputs],
            "calls": [call.to_dict() for call in self.calls],
            "results": list(self.results),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Network:
        """Inverse of `to_dict`.

        Raises:
            ArtifactError: the values are no network.
        """
        try:
            return cls(
                inputs=tuple(Call.from_dict(call) for call in values["inputs"]),
                calls=tuple(Call.from_dict(call) for call in values["calls"]),
                results=tuple(values["results"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
            if isinstance(error, ArtifactError):
                raise
            raise ArtifactError(f"the network cannot be read: {error!r}") from None


def network_of(mod: IRModule) -> Network:
    """The network of an annotated or calibrated module, quantizers at the ports that read them.

    Example:
        network = network_of(Annotate()(Prepare(params)(mod)))
        [call.node for call in network.calls if call.reason]
    """
    return _Reader(main_function(mod)).network()


def placed_rows(
    network: Network, table: Sequence[QuantizerRow]
) -> dict[tuple[str, int], QuantizerRow]:
    """Rows of the calibration table by (variable of the call, port).

    Raises:
        ArtifactError: network and table are of different modules.
    """
    rows = iter(table)
    found = {}
    for call in network.calls:
        if call.op == BRANCH:
            continue
        numbers: list[int | None] = [port.number for port in call.ports if port.quantizer]
        for number in numbers or [None]:
            row = next(rows, None)
            if row is None or (row.node, row.port) != (call.node, number):
                raise ArtifactError(
                    f"the calibration table is not of this network: at '{call.node}' it has "
                    f"{'no row' if row is None else repr(row.node)}"
                )
            if number is not None:
                found[call.variable, number] = row
    return found


class _Reader:
    """Walks a function; tuples, their fields and casts are followed to the calls they come from."""

    def __init__(self, func: relax.Function):
        self.func = func
        self.reasons = float_reasons(func)
        self.origins: dict[relax.Var, tuple[str, ...]] = {}
        self.fields: dict[relax.Var, tuple[tuple[str, ...], ...]] = {}
        self.quantizers: dict[relax.Var, relax.Call] = {}
        self.calls: list[Call] = []

    def network(self) -> Network:
        inputs = [self._input(param) for param in self.func.params]
        for block in self.func.body.blocks:
            for binding in block.bindings:
                self._bind(binding.var, binding.value)
        results = dict.fromkeys(self._origins(self.func.body.body))
        return Network(inputs=tuple(inputs), calls=tuple(self.calls), results=tuple(results))

    def _input(self, param: relax.Var) -> Call:
        self.origins[param] = (str(param.name),)
        return Call(
            variable=str(param.name),
            node=node_name(self.func, param),
            op="input",
            shape=tensor_shape(param),
        )

    def _bind(self, var: relax.Var, value: relax.Expr) -> None:
        if is_simulated(value):
            self.quantizers[var] = value
        if isinstance(value, relax.Tuple):
            self.fields[var] = tuple(self._origins(field) for field in value.fields)
        if isinstance(value, relax.Call | relax.If) and not is_simulated(value):
            self.calls.append(self._call(var, value))
            self.origins[var] = (str(var.name),)
        else:
            self.origins[var] = self._origins(value)

    def _call(self, var: relax.Var, value: relax.Expr) -> Call:
        branch = isinstance(value, relax.If)
        operands = relax.analysis.free_vars(value) if branch else flat_operands(value)
        ports = (self._port(number, operand) for number, operand in enumerate(operands))
        return Call(
            variable=str(var.name),
            node=node_name(self.func, var),
            op=BRANCH if branch else op_name(value) or "call",
            shape=tensor_shape(var),
            ports=tuple(port for port in ports if port.reads or port.quantizer),
            reason=self.reasons.get(str(var.name)),
        )

    def _port(self, number: int, operand: relax.Expr) -> Port:
        call = operand if is_simulated(operand) else self.quantizers.get(operand)
        source = operand if call is None else call.args[0]
        return Port(
            number=number,
            reads=self._origins(source),
            tensor=node_name(self.func, source) if isinstance(source, relax.Var) else CONSTANT,
            quantizer=None if call is None else _placed(operand, call),
        )

    def _origins(self, expr: relax.Expr) -> tuple[str, ...]:
        if isinstance(expr, relax.Var):
            return self.origins.get(expr, ())
        if isinstance(expr, relax.TupleGetItem) and expr.tuple_value in self.fields:
            return self.fields[expr.tuple_value][expr.index]
        parts: list[relax.Expr] = []
        if isinstance(expr, relax.Tuple):
            parts = list(expr.fields)
        elif isinstance(expr, relax.TupleGetItem):
            parts = [expr.tuple_value]
        elif is_simulated(expr):
            parts = [expr.args[0]]
        return tuple(dict.fromkeys(name for part in parts for name in self._origins(part)))


def _placed(operand: relax.Expr, call: relax.Call) -> PlacedQuantizer:
    return PlacedQuantizer(
        variable=str(operand.name) if isinstance(operand, relax.Var) else "",
        kind=kind_of(call),
        spec=spec_of(call),
        group=group_of(call),
    )
