"""Deeploy and PACT: integers in float tensors, and RequantShift between the layers.

    RequantShift    y = clamp(floor((x mul + add) / div + 1/2), low, high)

All values are whole numbers, so that quantizers have the scale 1.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.quantized.codes import fewest_bits, quantized_constant
from tvm_quant.frontend.onnx.converters.quantized.place import Array, Grid, place
from tvm_quant.ir import constant
from tvm_quant.op import QuantSpec, Rounding

#: What inputs of such networks hold: integers of 8 bits, signed or not.
INPUT = QuantSpec(bits=9)

_UNIT = {"scale": np.ones((), "float32"), "zero_point": np.zeros((), "int64")}


def requant_shift(node: Node) -> relax.Expr:
    """Inputs: data, mul, add."""
    divisor, levels, signed = (_attribute(node, n) for n in ("div", "n_levels_out", "signed"))
    if not (divisor >= 1 and levels >= 2 and float(levels).is_integer()):
        raise ValueError(
            f"it divides by {divisor:g} and has {levels:g} levels; expected at least 1 and 2"
        )
    factor, shift = (node.known(i, what).astype("float64") for i, what in ((1, "mul"), (2, "add")))
    real = node.emit(relax.op.multiply(node.data, _constant(factor / divisor)))
    if shift.any():
        real = node.emit(relax.op.add(real, _constant(shift / divisor)))
    return place(node, real, Grid(**_UNIT, spec=_levels(int(levels), bool(signed))))


def integers(node: Node) -> relax.Expr:
    """Whole numbers in a float tensor: a constant, or an input of the network."""
    known = node.constant(0)
    if known is None:
        return place(node, node.data, Grid(**_UNIT, spec=INPUT))
    signed = bool((known < 0).any())
    bits = fewest_bits(known.astype("int64"), signed)
    grid = Grid(**_UNIT, spec=QuantSpec(bits=bits, signed=signed))
    return quantized_constant(node, known.astype("int64"), grid)


def _levels(levels: int, signed: bool) -> QuantSpec:
    low = -(levels // 2) if signed else 0
    bits = (levels - 1).bit_length()
    whole = levels == 1 << bits
    return QuantSpec(
        bits=bits,
        signed=signed,
        low=None if whole else low,
        high=None if whole else low + levels - 1,
        rounding=Rounding.HALF_CEIL,
    )


def _attribute(node: Node, name: str) -> float:
    value = node.attributes.get(name)
    if value is None:
        raise ValueError(f"it lacks the attribute '{name}'")
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    array: Array = np.asarray(value, "float64").reshape(-1)
    if array.size != 1:
        raise ValueError(f"its attribute '{name}' has {array.size} values; expected one")
    return float(array[0])


def _constant(array: Array) -> relax.Expr:
    return constant(np.asarray(array, "float32"))
