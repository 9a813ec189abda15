"""Sums and products of two tensors of codes, in float32 as ONNX Runtime's kernels for x86 do them.

    sum        y = round(fma(a, r_a, fma(b, r_b, c)))              r = s / s_y
               c = z_y - fma(r_a, z_a, r_b z_b)
    product    y = round(m (a - z_a) (b - z_b) + z_y)              m = s_a s_b / s_y

Every operation rounds to float32, an fma once, and that decides codes at ties; `round` takes ties
to even. Sums run along the innermost axis longer than 1: an operand that is constant there is b.

An fma is taken in float64, where the product of a code and a float32 is exact: the same on every
target, with or without such an instruction. Where there are two roundings, a compiler may not make
an fma of them: the clamp to the codes stands between, where it changes no code.

On Arm, and on x86 without AVX2, ONNX Runtime has other sums, which differ at ties.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from tvm_quant.ir import constant, tensor_shape
from tvm_quant.transform.integer.emitter import Emitter
from tvm_quant.transform.integer.value import Codes, Value

R = relax.op

#: Wider codes are none of ONNX Runtime's operators.
MOST_BITS = 8


def two_byte_tensors(operands: list[Value]) -> bool:
    """Two tensors of codes of at most 8 bits, with one scale each."""
    return all(
        isinstance(value, Codes) and value.scale.size == 1 and value.spec.bits <= MOST_BITS
        for value in operands
    )


def sum_in_float32(emitter: Emitter, _call: relax.Call, operands: list[Value]) -> Codes:
    """QLinearAdd."""
    wanted, (a, b) = _wanted(emitter), _codes(operands)
    if _is_constant_along_runs(a, b):
        a, b = b, a
    ratio_a, ratio_b = (_scale(codes) / _scale(wanted) for codes in (a, b))
    zeros = _rounded(ratio_a, _zero_point(a), ratio_b * _zero_point(b))
    rest = constant(np.float64(_zero_point(wanted) - zeros))
    partial = emitter.emit(_fma(b, ratio_b, rest), "_partial")
    total = emitter.emit(_fma(a, ratio_a, R.astype(partial, "float64")), "_sum")
    return _result(emitter, R.clip(total, wanted.spec.qmin, wanted.spec.qmax), wanted)


def product_in_float32(emitter: Emitter, _call: relax.Call, operands: list[Value]) -> Codes:
    """QLinearMul."""
    wanted, (a, b) = _wanted(emitter), _codes(operands)
    zero_point = _zero_point(wanted)
    steps = R.multiply(emitter.centred(a, "int32"), emitter.centred(b, "int32"))
    factor = constant(_scale(a) * _scale(b) / _scale(wanted))
    scaled = emitter.emit(R.multiply(R.astype(steps, "float32"), factor), "_product")
    low, high = (bound - float(zero_point) for bound in (wanted.spec.qmin, wanted.spec.qmax))
    return _result(emitter, R.add(R.clip(scaled, low, high), constant(zero_point)), wanted)


def _wanted(emitter: Emitter) -> Codes:
    assert emitter.behind is not None, "the convention comes from a quantizer"
    return emitter.behind


def _codes(operands: list[Value]) -> list[Codes]:
    return [value for value in operands if isinstance(value, Codes)]


def _scale(codes: Codes) -> np.float32:
    return np.float32(codes.scale.item())


def _zero_point(codes: Codes) -> np.float32:
    return np.float32(codes.zero_point.item())


def _is_constant_along_runs(a: Codes, b: Codes) -> bool:
    """Whether `a` has one element along the innermost axis of both where one of them has more.

    Two tensors of one element are constant, and a tensor of rank 0 has an axis for this.
    """
    shape_a, shape_b = (tensor_shape(codes.expr) or (1,) for codes in (a, b))
    for extent_a, extent_b in zip(reversed(shape_a), reversed(shape_b), strict=False):
        if (extent_a, extent_b) != (1, 1):
            return extent_a == 1
    return True


def _fma(codes: Codes, ratio: np.float32, added: relax.Expr) -> relax.Expr:
    product = R.multiply(R.astype(codes.expr, "float64"), constant(np.float64(ratio)))
    return R.astype(R.add(product, added), "float32")


def _rounded(factor: np.float32, value: np.float32, added: np.float32) -> np.float32:
    """The fma of three numbers."""
    return np.float32(np.float64(factor) * np.float64(value) + np.float64(added))


def _result(emitter: Emitter, clamped: relax.Expr, wanted: Codes) -> Codes:
    codes = R.astype(R.round(clamped), wanted.spec.dtype)
    return replace(wanted, expr=emitter.emit(codes, "_q"))
