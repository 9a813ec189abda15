"""A neural processing unit with 4-bit operands: an example of what rows can say."""

from __future__ import annotations

from tvm_quant.hardware.config import HardwareConfig, OperandGrids
from tvm_quant.hardware.grid import grids
from tvm_quant.op import Role

_WEIGHT = grids("8SCsn 8SNsn 4SCsn 4SNsn")


def _operands(data: str) -> OperandGrids:
    return OperandGrids(data=grids(data), other=grids(data), weight=_WEIGHT)


NPU = HardwareConfig(
    name="npu",
    source="NNCF's table for Intel NPUs (openvinotoolkit/nncf), without its 16-bit grids",
    roles={
        Role.CONTRACTION: _operands("8SN 8AN 4SN"),
        Role.SUM: _operands("8SN 8AN 4SN"),
        Role.PRODUCT: _operands("8SN 8AN 4SN"),
        Role.MEAN: _operands("8SN 8AN"),
        Role.CLAMP: _operands("8SN 8AN 4SN"),
    },
    ops={f"relax.nn.conv{rank}d:depthwise": _operands("8SC 8SN 8AC 8AN") for rank in (1, 2, 3)},
    unified=frozenset({"relax.concat", "relax.add", "relax.subtract", "relax.multiply"}),
    sums_on_accumulators=False,
)
