"""QONNX: Quant (IntQuant), BipolarQuant and Trunc.

    Quant   y = (round(clamp(x / s + z, low, high)) - z) s          Trunc   see there

Source: the operator documents of fastmachinelearning/qonnx, docs/qonnx-custom-ops.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.quantized.place import (
    Array,
    Grid,
    aligned,
    axis_of,
    checked_scale,
    known_value,
    place,
)
from tvm_quant.ir import constant
from tvm_quant.op import Formula, QuantSpec, Rounding
from tvm_quant.op.spec import MAX_BITS

ROUNDINGS = {
    "ROUND": Rounding.HALF_EVEN,
    "HALF_EVEN": Rounding.HALF_EVEN,
    "HALF_UP": Rounding.HALF_UP,
    "HALF_DOWN": Rounding.HALF_DOWN,
    "CEIL": Rounding.CEIL,
    "FLOOR": Rounding.FLOOR,
    "UP": Rounding.UP,
    "DOWN": Rounding.DOWN,
}

BIPOLAR = QuantSpec(bits=1, low=-1, high=1, rounding=Rounding.SIGN, formula=Formula.SHIFT)


class QuantizerAttributeWarning(UserWarning):
    """A quantizer lacks an attribute that its document says it must have."""


def quant(node: Node) -> relax.Expr:
    """Inputs: data, scale, zero point, bit width."""
    bits = bit_width(node, 3)
    signed, narrow = _flag(node, "signed", default=1), _flag(node, "narrow", default=0)
    rounding = rounding_of(node, "ROUND")
    spec = BIPOLAR if bits == 1 and signed else integer_spec(bits, signed, narrow, rounding)
    return _quantized(node, node.known(1, "scale"), node.known(2, "zero point"), spec)


def bipolar_quant(node: Node) -> relax.Expr:
    """Inputs: data, scale. The sign of the data alone decides."""
    scale = node.known(1, "scale")
    if (scale >= 0).all():
        return _quantized(node, scale, np.zeros(()), BIPOLAR)
    result = _quantized(node, np.abs(scale), np.zeros(()), BIPOLAR)
    return relax.op.multiply(result, constant(np.sign(scale).astype("float32")))


def trunc(node: Node) -> relax.Expr:
    """The low bits of codes dropped: version 1 keeps the scale, version 2 gives the new one.

        v1   y = (round((x / s + z) / 2**(in_bits - out_bits)) - z) s
        v2   y = (round(clamp((x / s + z) / t)) - z / t) out_scale

    with t = 2**rint(log2(out_scale / s)).
    """
    return _TRUNC[min(max(node.version, 1), 2)](node)


def _trunc_1(node: Node) -> relax.Expr:
    before, after = bit_width(node, 3), bit_width(node, 4)
    spec = integer_spec(min(after + 1, MAX_BITS), True, False, rounding_of(node, "FLOOR"))
    scale = checked_scale(node.known(1, "scale"))
    factor = 2.0 ** (before - after)
    return _truncated(node, scale, factor, scale, node.known(2, "zero point"), spec)


def _trunc_2(node: Node) -> relax.Expr:
    after = bit_width(node, 5)
    signed, narrow = _flag(node, "signed", default=1), _flag(node, "narrow", default=0)
    spec = integer_spec(after, signed, narrow, rounding_of(node, "FLOOR"))
    scale, result = (checked_scale(node.known(i, "scale")) for i in (1, 4))
    factor = 2.0 ** np.round(np.log2(result / scale))
    zero_point = node.known(2, "zero point")
    return _truncated(node, scale, factor, result, zero_point / factor, spec, zero_point)


_TRUNC = {1: _trunc_1, 2: _trunc_2}


def _truncated(
    node: Node,
    scale: Array,
    factor: Array | float,
    result: Array,
    left: Array,
    spec: QuantSpec,
    zero_point: Array | None = None,
) -> relax.Expr:
    """Codes of `scale` by `factor`, less `left`, in steps of `result`."""
    zero_point = left if zero_point is None else zero_point
    before = integer_spec(min(bit_width(node, 3) + 1, MAX_BITS), True, False, Rounding.HALF_EVEN)
    data = node.data
    if zero_point.any():
        shift = constant(np.asarray(zero_point * scale, "float32"))
        data = node.emit(relax.op.add(data, shift))
    whole = _quantized(replace(node, inputs=[data]), scale, np.zeros(()), before)
    codes = _quantized(replace(node, inputs=[whole]), scale * factor, np.zeros(()), spec)
    steps = np.asarray(result / (scale * factor), "float32")
    value = codes if (steps == 1).all() else node.emit(relax.op.multiply(codes, constant(steps)))
    if not left.any():
        return value
    return relax.op.subtract(value, constant(np.asarray(left * result, "float32")))


def _quantized(node: Node, scale: Array, zero_point: Array, spec: QuantSpec) -> relax.Expr:
    """A quantizer with any sign of scale and any zero point.

    What is left of a zero point beside the whole number next to it shifts data and result; a
    negative scale turns both around.
    """
    data = node.data
    scale = aligned(np.asarray(scale, "float32"), data, "scale")
    zero_point = aligned(np.asarray(zero_point, "float64"), data, "zero point")
    whole = np.round(zero_point)
    _check_zero_point(whole, spec)
    turned = bool((np.asarray(scale) < 0).any())
    sign = constant(np.sign(scale).astype("float32"))
    magnitude = checked_scale(np.abs(scale) if turned else scale)
    rest = constant(np.asarray((zero_point - whole) * magnitude, "float32"))
    shifted = bool((zero_point != whole).any())
    if turned:
        data = _fold(node, relax.op.multiply(data, sign), np.multiply)
    if shifted:
        data = _fold(node, relax.op.add(data, rest), np.add)
    shape = np.broadcast_shapes(np.shape(magnitude), np.shape(whole))
    grid = Grid(
        scale=np.broadcast_to(magnitude, shape),
        zero_point=np.broadcast_to(whole, shape).astype("int64"),
        spec=replace(spec, axis=axis_of(magnitude, whole), symmetric=not whole.any()),
    )
    result: relax.Expr = place(node, data, grid)
    if shifted:
        result = node.emit(relax.op.subtract(result, rest))
    return node.emit(relax.op.multiply(result, sign)) if turned else result


def _fold(node: Node, call: relax.Call, function: np.ufunc) -> relax.Expr:
    """The call, or its value where it is known."""
    known = known_value(node, call.args[0]), known_value(node, call.args[1])
    if known[0] is None or known[1] is None:
        return node.emit(call)
    return constant(np.asarray(function(known[0], known[1]), "float32"))


def _check_zero_point(zero_point: Array, spec: QuantSpec) -> None:
    limits = np.iinfo(spec.dtype)
    if not ((limits.min <= zero_point) & (zero_point <= limits.max)).all():
        raise ValueError(
            f"its zero point {float(np.max(np.abs(zero_point)))} lies outside of the codes of "
            f"{spec.bits} bits; expected one that {spec.dtype} holds"
        )


def integer_spec(bits: int, signed: bool, narrow: bool, rounding: Rounding) -> QuantSpec:
    """The codes of a QONNX quantizer; an unsigned narrow range drops the largest."""
    return QuantSpec(
        bits=bits,
        signed=signed,
        narrow=narrow and signed and bits > 1,
        high=(1 << bits) - 2 if narrow and not signed else None,
        rounding=rounding,
        formula=Formula.SHIFT,
    )


def bit_width(node: Node, index: int) -> int:
    """A bit width as a number.

    Raises:
        ValueError: not one whole number from 1 to 32.
    """
    widths = np.unique(node.known(index, "bit width"))
    if widths.size != 1:
        raise ValueError(f"its bit width differs by element: {widths.tolist()}; expected one")
    width = float(widths[0])
    if not (width.is_integer() and 1 <= width <= MAX_BITS):
        raise ValueError(f"its bit width is {width:g}; expected a whole number, 1 to {MAX_BITS}")
    return int(width)


def rounding_of(node: Node, default: str) -> Rounding:
    """The rounding mode, in any letter case.

    Raises:
        ValueError: an unknown name.
    """
    name = str(node.attributes.get("rounding_mode", default)).upper()
    if name not in ROUNDINGS:
        raise ValueError(f"its rounding mode is '{name}'; expected one of {sorted(ROUNDINGS)}")
    return ROUNDINGS[name]


def _flag(node: Node, name: str, default: int) -> bool:
    value = node.attributes.get(name)
    if value is None:
        warnings.warn(
            f"Node '{node.name}' lacks the attribute '{name}'; {default} is assumed.",
            QuantizerAttributeWarning,
            stacklevel=2,
        )
        return bool(default)
    return bool(value)
