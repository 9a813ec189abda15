"""`HardwareConfig`: what a target runs on integers, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvm_quant.errors import ConfigError
from tvm_quant.hardware.grid import Grid
from tvm_quant.op import OP_SPECS, RequantizeMode, Role

DEPTHWISE = ":depthwise"  # after the name of a convolution: one with a kernel per channel


@dataclass(frozen=True, kw_only=True)
class OperandGrids:
    """The grids that the operands of an operator may have, best first.

    Attributes:
        data: grids of the first tensor operand.
        other: grids of any further tensor operand that is computed at run time.
        weight: grids of a constant operand.
    """

    data: tuple[Grid, ...]
    other: tuple[Grid, ...]
    weight: tuple[Grid, ...]

    def __post_init__(self) -> None:
        if not (self.data and self.other and self.weight):
            raise ConfigError("OperandGrids: each operand needs at least one grid.")


@dataclass(frozen=True, kw_only=True)
class HardwareConfig:
    """One hardware row.

    Attributes:
        name: key in `HARDWARE`.
        source: where the facts come from.
        roles: operand grids per role of operator. Roles that only move values need none.
        ops: operand grids per operator, before its role's; "relax.nn.conv2d:depthwise" is a
            convolution with a kernel per channel.
        float_ops: operators that this hardware has no integer form for.
        unified: operators whose operands must share one grid and one scale.
        sums_on_accumulators: whether a sum adds to the accumulator of the contraction before it;
            if not, both of its operands are quantized.
        sums_leave: whether sums of products can be read back as they are. If not, an average reads
            codes even where no quantized layer follows, or the layer before it would run elsewhere.
        accumulator_bits: width of the sums of products.
        requantize: how accumulators are scaled.
        power_of_two_scales: whether only powers of two are possible.
        largest_pair: of the codes of two weights whose products are added in 16 bits, the largest
            sum of the magnitudes of those of one sign; None where sums of all codes fit.
    """

    name: str
    source: str
    roles: Mapping[Role, OperandGrids]
    ops: Mapping[str, OperandGrids] = field(default_factory=dict)
    float_ops: frozenset[str] = frozenset()
    unified: frozenset[str] = frozenset({"relax.concat"})
    sums_on_accumulators: bool = True
    sums_leave: bool = True
    accumulator_bits: int = 32
    requantize: RequantizeMode = RequantizeMode.FLOAT
    power_of_two_scales: bool = False
    largest_pair: int | None = None

    def __post_init__(self) -> None:
        named = {*(op.removesuffix(DEPTHWISE) for op in self.ops), *self.float_ops, *self.unified}
        unknown = sorted(named - set(OP_SPECS))
        if unknown:
            raise ConfigError(f"Hardware row '{self.name}' names unknown operator(s) {unknown}.")

    def runs(self, op: str) -> bool:
        """Whether operator `op` has an integer form."""
        moves = OP_SPECS[op].role in (Role.MOVE, Role.JOIN)
        return op not in self.float_ops and (moves or self.operands(op) is not None)

    def operands(self, op: str, *, depthwise: bool = False) -> OperandGrids | None:
        """The grids that operator `op` accepts; None if it only runs in float."""
        if op in self.float_ops:
            return None
        for key in ([op + DEPTHWISE] if depthwise else []) + [op]:
            if key in self.ops:
                return self.ops[key]
        return self.roles.get(OP_SPECS[op].role)
