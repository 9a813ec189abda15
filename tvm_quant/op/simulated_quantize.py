"""`tvm_quant.simulated_quantize`: rounding to an integer grid, in float.

    simulated_quantize(data)                     -> data, "uncalibrated": the identity
    simulated_quantize(data, scale, zero_point)  -> scale * (q - zero_point)
        with q = clamp(round(data / scale) + zero_point, qmin, qmax)

It is the one extension of the IR: every pass before `Realize` places these calls or fills in their
scales. Rounding is to nearest, ties to even, unless the grid says otherwise: models that were
quantized elsewhere bring their own (`QuantSpec.rounding`, `QuantSpec.formula`), and a `Convention`
of how their integers are scaled.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from tvm import IRModule, relax, te, tirx
from tvm.relax.transform.legalize_ops.common import register_legalize

from tvm_quant.ir import bindings, constant, constant_value
from tvm_quant.ir.signature import main_function
from tvm_quant.op.layout import elementwise_layout, first_layout
from tvm_quant.op.register import dict_attrs, register_op
from tvm_quant.op.rounding import round_numpy, round_te
from tvm_quant.op.spec import Convention, Formula, Kind, QuantSpec

Array = npt.NDArray[Any]

NO_GROUP = -1

#: Attribute of a `main` that another tool quantized, whatever is left of its quantizers.
ANNOTATED = "tvm_quant.annotated"

#: Bits of the fraction of a float32.
FLOAT32_BITS = 24


def simulated_quantize(
    data: relax.Expr,
    scale: npt.ArrayLike | None = None,
    zero_point: npt.ArrayLike | None = None,
    *,
    spec: QuantSpec,
    kind: Kind,
    group: int = NO_GROUP,
    convention: Convention = Convention.BACKEND,
) -> relax.Call:
    """Round `data` to the grid of `spec`.

    Args:
        data: float32, any shape.
        scale: float32, > 0, of shape () per tensor; per channel, of data's rank with ones
            everywhere but at the channel axis. None leaves the call uncalibrated.
        zero_point: int32, shape of `scale`, in [qmin, qmax]; None is zero.
        spec: the grid.
        kind: the role of `data`.
        group: calls of one group get one scale and zero point; `NO_GROUP` is none.
        convention: how `Realize` gets to the codes where `data` is computed on integers.

    Returns:
        A call of the type of `data`.
    """
    foreign = {} if convention is Convention.BACKEND else {"convention": convention.value}
    attrs = dict_attrs(kind=kind.value, group=group, **spec.to_attrs(), **foreign)
    if scale is None:
        return relax.Call(SIMULATED_QUANTIZE, [data], attrs)
    scale = np.asarray(scale, "float32")
    zero_point = np.broadcast_to(np.asarray(0 if zero_point is None else zero_point), scale.shape)
    operands = [data, constant(scale), constant(zero_point.astype("int32"))]
    return relax.Call(SIMULATED_QUANTIZE, operands, attrs)


def quantize_numpy(
    data: npt.ArrayLike, scale: npt.ArrayLike, zero_point: npt.ArrayLike, spec: QuantSpec
) -> Array:
    """Codes of `data` on the grid, in the storage dtype of `spec`.

    >>> quantize_numpy([-1.0, 0.26, 9.0], 0.5, 3, QuantSpec(signed=False, symmetric=False)).tolist()
    [1, 4, 21]
    """
    data, scale = np.asarray(data, "float32"), np.asarray(scale, "float32")
    zero_point = np.asarray(zero_point, "float32")
    with np.errstate(over="ignore"):  # what overflows saturates
        steps = data * _inverse(scale, spec) if spec.formula is Formula.RECIPROCAL else data / scale
    return to_dtype(rounded_numpy(steps, zero_point, spec), spec)


def rounded_numpy(steps: Array, zero_point: Array, spec: QuantSpec) -> Array:
    """Codes before the clamp, of real numbers in steps of the scale."""
    if spec.formula is Formula.SHIFT:
        return round_numpy(steps + zero_point, spec.rounding)
    return round_numpy(steps, spec.rounding) + zero_point


def _inverse(scale: Array, spec: QuantSpec) -> Array:
    return np.asarray(1 / scale if spec.reciprocal is None else spec.reciprocal, "float32")


def to_dtype(codes: Array, spec: QuantSpec) -> Array:
    """Clamp codes to the grid and store them; NaN becomes the smallest code."""
    if spec.bits > FLOAT32_BITS:  # a float32 does not hold the largest code
        codes = codes.astype("float64")
    clamped = np.clip(codes, spec.qmin, spec.qmax)
    return np.asarray(np.where(np.isnan(clamped), spec.qmin, clamped), spec.dtype)


def simulated_quantize_numpy(
    data: npt.ArrayLike, scale: npt.ArrayLike, zero_point: npt.ArrayLike, spec: QuantSpec
) -> Array:
    """NumPy reference of a calibrated call: float32, shape of `data`."""
    codes = quantize_numpy(data, scale, zero_point, spec).astype("float32")
    return np.asarray((codes - np.asarray(zero_point, "float32")) * np.asarray(scale, "float32"))


def is_simulated(expr: relax.Expr) -> TypeGuard[relax.Call]:
    """Whether `expr` is a call of this op."""
    return isinstance(expr, relax.Call) and expr.op == SIMULATED_QUANTIZE


def is_annotated(mod: IRModule) -> bool:
    """Whether `main` has a quantizer, or says that it needs none."""
    if (main_function(mod).attrs or {}).get(ANNOTATED):
        return True
    return any(is_simulated(binding.value) for binding in bindings(main_function(mod)))


def brings_scales(mod: IRModule) -> bool:
    """Whether `main` is annotated, and all of its quantizers have their scales."""
    quantizers = [b.value for b in bindings(main_function(mod)) if is_simulated(b.value)]
    return is_annotated(mod) and all(map(is_calibrated, quantizers))


def is_calibrated(call: relax.Call) -> bool:
    """Whether a call of this op has its scale and zero point."""
    return len(call.args) == 3


def spec_of(call: relax.Call) -> QuantSpec:
    """The grid of a call of this op."""
    return QuantSpec.from_attrs(call.attrs)


def kind_of(call: relax.Call) -> Kind:
    """The role of the operand of a call of this op."""
    return Kind(str(call.attrs["kind"]))


def group_of(call: relax.Call) -> int:
    """The unified-scale group of a call of this op, or `NO_GROUP`."""
    return int(call.attrs["group"])


def convention_of(call: relax.Call) -> Convention:
    """How the codes of a call of this op are computed from integers."""
    return Convention(str(call.attrs.get("convention") or Convention.BACKEND.value))


def calibrated(call: relax.Call, scale: npt.ArrayLike, zero_point: npt.ArrayLike) -> relax.Call:
    """The same call with another scale and zero point."""
    return simulated_quantize(
        call.args[0],
        scale,
        zero_point,
        spec=spec_of(call),
        kind=kind_of(call),
        group=group_of(call),
        convention=convention_of(call),
    )


def scale_of(call: relax.Call) -> tuple[Array, Array]:
    """(scale, zero point) of a calibrated call: float32 and int32 arrays."""
    scale, zero_point = constant_value(call.args[1]), constant_value(call.args[2])
    assert scale is not None and zero_point is not None, "simulated_quantize() makes constants"
    return scale, zero_point


def _layout(call: relax.Call, desired: Any, layouts: Any) -> Any:
    """Any, unless an attribute says where the channels are."""
    infer = elementwise_layout if spec_of(call).axis is None else first_layout
    return infer(call, desired, layouts)


SIMULATED_QUANTIZE = register_op(
    "tvm_quant.simulated_quantize",
    "Round to an integer grid, in float.",
    [
        ("data", "float32, any shape"),
        ("scale", "float32, broadcastable to data; missing while uncalibrated"),
        ("zero_point", "int32, shape of scale; missing while uncalibrated"),
    ],
    lambda call, _builder: call.args[0].ty,
    variadic=True,
    layout=_layout,
)


@register_legalize("tvm_quant.simulated_quantize")
def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if not is_calibrated(call):
        return call.args[0]
    spec = spec_of(call)

    def compute(data: te.Tensor, scale: te.Tensor, zero_point: te.Tensor) -> te.Tensor:
        def element(*index: tirx.Var) -> tirx.PrimExpr:
            step = load_broadcast(scale, index)
            zero = load_broadcast(zero_point, index).astype("float32")
            code = codes_te(data(*index), step, zero, spec)
            return (code - zero) * step

        return te.compute(data.shape, element, name="simulated_quantize")

    return builder.call_te(compute, *call.args, primfunc_name_hint="simulated_quantize")


def codes_te(
    data: tirx.PrimExpr, scale: tirx.PrimExpr, zero: tirx.PrimExpr, spec: QuantSpec
) -> tirx.PrimExpr:
    """A code of the grid, in float32."""
    if spec.formula is Formula.RECIPROCAL:
        inverse = te.const(1.0, "float32") / scale
        if spec.reciprocal is not None:
            inverse = te.const(float(np.float32(spec.reciprocal)), "float32")
        code = round_te(data * inverse, spec.rounding) + zero
    elif spec.formula is Formula.SHIFT:
        code = round_te(data / scale + zero, spec.rounding)
    else:
        code = round_te(data / scale, spec.rounding) + zero
    low, high = (te.const(end, "float32") for end in float32_bounds(spec))
    return te.max(te.min(code, high), low)


def float32_bounds(spec: QuantSpec) -> tuple[float, float]:
    """The smallest and the largest code that a float32 holds.

    >>> float32_bounds(QuantSpec(bits=32))
    (-2147483648.0, 2147483520.0)
    """
    high = np.float32(spec.qmax)
    if float(high) > spec.qmax:
        high = np.nextafter(high, np.float32(0))
    return float(spec.qmin), float(high)


def load_broadcast(tensor: Any, index: tuple[tirx.Var, ...]) -> tirx.PrimExpr:
    """Element of `tensor` at `index` by NumPy's broadcasting.

    `tensor` is a scalar, or of equal rank with ones.
    """
    if not isinstance(tensor, te.Tensor):
        return tensor
    own = index[len(index) - len(tensor.shape) :]
    at = (0 if _is_one(dim) else i for i, dim in zip(own, tensor.shape, strict=True))
    return tensor(*at)


def _is_one(dim: tirx.PrimExpr) -> bool:
    return isinstance(dim, tirx.IntImm) and dim.value == 1
