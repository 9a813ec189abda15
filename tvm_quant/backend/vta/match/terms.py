"""A sum in int32 as the terms that it adds up.

    add(add(conv2d(x, w), bias), left_shift(astype(y), k))  =  [Product, Constant, Codes]

A shift to the left of a sum is one of each of its terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from tvm_quant.backend.vta.match.match import Array, Values, per_channel, tensor_of
from tvm_quant.ir import constant_value, op_name, tensor_shape

#: A weight of 2**6 is the largest power of two in int8.
LARGEST_WEIGHT_SHIFT = 6


@dataclass(frozen=True, kw_only=True)
class Product:
    """A contraction of codes with constants.

    Attributes:
        data: int8 variable.
        weight: int8 (O, I / groups, KH, KW), or (O, K) of a matrix product.
        strides, padding, dilation, groups: as those of `Convolution`.
        macs: multiplications; 0 of a sum that is none.
    """

    data: relax.Var
    weight: Array
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    macs: int = 0


@dataclass(frozen=True, kw_only=True)
class Codes:
    """An int8 tensor, shifted to the left: int64 (C,)."""

    data: relax.Var
    shift: Array


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A number for each channel: int64 (C,)."""

    value: Array


Term = Product | Codes | Constant


def terms_of(expr: relax.Expr, values: Values, like: relax.Expr) -> list[Term] | None:
    """The terms of an int32 sum of the shape of `like`; None where one has no form on VTA."""
    known = per_channel(expr, like)
    if known is not None:
        return [Constant(value=known)]
    call = values.get(expr) if isinstance(expr, relax.Var) else expr
    rule = _TERMS.get(str(op_name(call)))
    if call is None or rule is None or str(call.ty.dtype) != "int32":
        return None
    return rule(call, values, like)


def _sum(call: relax.Call, values: Values, like: relax.Expr) -> list[Term] | None:
    left, right = (terms_of(arg, values, like) for arg in call.args)
    return None if left is None or right is None else left + right


def _shifted(call: relax.Call, values: Values, like: relax.Expr) -> list[Term] | None:
    left, terms = per_channel(call.args[1], like), terms_of(call.args[0], values, like)
    if left is None or terms is None:
        return None
    shifted = [_shift(term, left) for term in terms]
    found = [term for term in shifted if term is not None]
    return found if len(found) == len(shifted) else None


def _shift(term: Term, left: Array) -> Term | None:
    if isinstance(term, Constant):
        return Constant(value=term.value << left)
    if isinstance(term, Codes):
        return replace(term, shift=term.shift + left)
    axes = (-1,) + (1,) * (term.weight.ndim - 1)
    weight = term.weight.astype("int64") << left.reshape(axes)
    if np.abs(weight).max() > np.iinfo("int8").max:
        return None
    return replace(term, weight=weight.astype("int8"))


def _codes(call: relax.Call, values: Values, like: relax.Expr) -> list[Term] | None:
    (data,) = call.args
    if not isinstance(data, relax.Var) or str(data.ty.dtype) != "int8":
        return None
    shape = tensor_shape(data)
    if shape is None or shape != tensor_shape(like):
        return None
    return [Codes(data=data, shift=np.zeros(shape[1] or 1, "int64"))]


def _convolution(call: relax.Call, _values: Values, like: relax.Expr) -> list[Term] | None:
    data, weight, attrs = call.args[0], constant_value(call.args[1]), call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if weight is None or weight.dtype != np.int8 or layouts != ("NCHW", "OIHW", "NCHW"):
        return None
    if not isinstance(data, relax.Var):
        return None
    top, left, bottom, right = map(int, attrs.padding)
    return [
        Product(
            data=data,
            weight=weight,
            strides=_pair(attrs.strides),
            padding=(top, left, bottom, right),
            dilation=_pair(attrs.dilation),
            groups=int(attrs.groups),
            macs=_elements(like) * int(np.prod(weight.shape[1:])),
        )
    ]


def _matmul(call: relax.Call, values: Values, like: relax.Expr) -> list[Term] | None:
    data, weight = call.args[0], constant_value(call.args[1])
    if weight is None or weight.dtype != np.int8 or weight.ndim != 2:
        return None
    if not isinstance(data, relax.Var) or len(tensor_shape(data) or ()) != 2:
        return None
    macs = _elements(like) * len(weight)
    plane = _before_flatten(data, values)
    if plane is None:
        return [Product(data=data, weight=np.ascontiguousarray(weight.T), macs=macs)]
    kernel = np.ascontiguousarray(weight.T).reshape(-1, *(tensor_shape(plane) or ())[1:])
    return [Product(data=plane, weight=kernel, macs=macs)]


def _before_flatten(data: relax.Var, values: Values) -> relax.Var | None:
    """(N, C, H, W) that a reshape makes (N, C * H * W): a kernel as large as the plane reads it."""
    value = values.get(data)
    if value is None or op_name(value) not in ("relax.reshape", "relax.flatten"):
        return None
    plane = value.args[0]
    shape, flat = tensor_shape(plane), tensor_shape(data)
    if not isinstance(plane, relax.Var) or shape is None or flat is None or len(shape) != 4:
        return None
    return plane if shape[0] == flat[0] and None not in shape else None


def _plane_sum(call: relax.Call, values: Values, like: relax.Expr) -> list[Term] | None:
    """The sum of a plane: a depthwise convolution with ones."""
    wide = values.get(call.args[0])
    if wide is None or op_name(wide) != "relax.astype" or not bool(call.attrs.keepdims):
        return None
    data = wide.args[0]
    tensor = tensor_of(data) if isinstance(data, relax.Var) else None
    if tensor is None or sorted(int(axis) % 4 for axis in call.attrs.axis) != [2, 3]:
        return None
    _, channels, height, width = tensor.nchw
    ones = np.ones((channels, 1, height, width), np.int8)
    return [Product(data=data, weight=ones, groups=len(ones))]


def _pair(values: object) -> tuple[int, int]:
    first, second = map(int, values)  # type: ignore[call-overload]
    return first, second


def _elements(expr: relax.Expr) -> int:
    return int(np.prod([extent or 0 for extent in tensor_shape(expr) or (0,)]))


_TERMS: dict[str, Callable[[relax.Call, Values, relax.Expr], list[Term] | None]] = {
    "relax.add": _sum,
    "relax.left_shift": _shifted,
    "relax.astype": _codes,
    "relax.nn.conv2d": _convolution,
    "relax.matmul": _matmul,
    "relax.sum": _plane_sum,
}
