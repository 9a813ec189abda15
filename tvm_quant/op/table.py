"""`OP_SPECS`: what quantization has to know about each Relax operator, one row an operator.

A new operator is one row. Passes ask the row for its role and never compare operator names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special
from tvm import relax

from tvm_quant.ir import op_name
from tvm_quant.op.limits import (
    limit_of_adaptive_pool,
    limit_of_average_pool,
    limit_of_mean,
    limit_of_pad,
    limit_of_resize,
)

Array = npt.NDArray[Any]


class Role(Enum):
    """How an operator behaves on integers."""

    CONTRACTION = "contraction"  # products summed in an integer accumulator: conv, matmul
    SUM = "sum"  # a + b or a - b of two tensors
    PRODUCT = "product"  # a * b of two tensors
    MEAN = "mean"  # an average: integer sum, scale divided by the count
    JOIN = "join"  # concat: moves integers if all operands share a grid
    MOVE = "move"  # moves integers untouched: reshape, max pool, slice, ...
    CLAMP = "clamp"  # relu, clip: narrows a range
    POINTWISE = "pointwise"  # any function of one element: a table on 8-bit codes


@dataclass(frozen=True, kw_only=True)
class OpSpec:
    """One operator.

    Attributes:
        name: Relax operator.
        role: see `Role`.
        function: for elementwise roles, the NumPy function of tensors, scalars and attributes.
        limit: why the attributes or shapes of a call leave it without an integer form, in words for
            the user; None if they do not. A nearest resize moves integers, a linear one computes
            new values.
        keeps_channels: for a role that moves values, whether channels of the operand are channels
            of the result.
    """

    name: str
    role: Role
    function: Callable[..., Array] | None = None
    limit: Callable[[relax.Call], str | None] = field(default=lambda _call: None)
    keeps_channels: bool = False


def spec_for(expr: relax.Expr) -> OpSpec | None:
    """The row of the operator that `expr` calls, or None."""
    name = op_name(expr)
    return None if name is None else OP_SPECS.get(name)


def role_of(expr: relax.Expr) -> Role | None:
    """The role of the operator that `expr` calls, or None."""
    spec = spec_for(expr)
    return None if spec is None else spec.role


def why_no_integers(call: relax.Call) -> str | None:
    """Why a call of an operator of the table has no integer form; None if it has one."""
    return OP_SPECS[str(call.op.name)].limit(call)


def _rows(role: Role, **functions: Callable[..., Array] | None) -> list[OpSpec]:
    return [
        OpSpec(name="relax." + name.replace("__", "."), role=role, function=function)
        for name, function in functions.items()
    ]


def _limited(role: Role, **limits: Callable[[relax.Call], str | None]) -> list[OpSpec]:
    return [
        OpSpec(name="relax." + name.replace("__", "."), role=role, limit=limit)
        for name, limit in limits.items()
    ]


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


_ALL = [
    *_rows(
        Role.CONTRACTION,
        nn__conv1d=None,
        nn__conv2d=None,
        nn__conv3d=None,
        nn__conv1d_transpose=None,
        nn__conv2d_transpose=None,
        matmul=None,
    ),
    *_rows(Role.SUM, add=lambda a, b, _attrs: a + b, subtract=lambda a, b, _attrs: a - b),
    *_rows(Role.PRODUCT, multiply=lambda a, b, _attrs: a * b),
    *_limited(
        Role.MEAN,
        mean=limit_of_mean,
        nn__avg_pool1d=limit_of_average_pool,
        nn__avg_pool2d=limit_of_average_pool,
        nn__avg_pool3d=limit_of_average_pool,
        nn__adaptive_avg_pool2d=limit_of_adaptive_pool,
    ),
    *_rows(Role.JOIN, concat=None),
    *_rows(
        Role.MOVE,
        reshape=None,
        permute_dims=None,
        flatten=None,
        squeeze=None,
        expand_dims=None,
        strided_slice=None,
        broadcast_to=None,
        max=None,
        min=None,
        flip=None,
        tile=None,
        repeat=None,
    ),
    *(
        OpSpec(name=f"relax.nn.max_pool{rank}d", role=Role.MOVE, keeps_channels=True)
        for rank in (1, 2, 3)
    ),
    *_limited(Role.MOVE, image__resize2d=limit_of_resize, nn__pad=limit_of_pad),
    *_rows(
        Role.CLAMP,
        nn__relu=lambda x, _attrs: np.maximum(x, 0),
        clip=lambda x, low, high, _attrs: np.clip(x, low, high),
    ),
    *_rows(
        Role.POINTWISE,
        abs=lambda x, _attrs: np.abs(x),
        cos=lambda x, _attrs: np.cos(x),
        divide=lambda a, b, _attrs: a / b,
        erf=lambda x, _attrs: special.erf(x),
        exp=lambda x, _attrs: np.exp(x),
        maximum=lambda a, b, _attrs: np.maximum(a, b),
        minimum=lambda a, b, _attrs: np.minimum(a, b),
        negative=lambda x, _attrs: -x,
        power=lambda a, b, _attrs: np.power(a, b),
        rsqrt=lambda x, _attrs: 1 / np.sqrt(x),
        sigmoid=lambda x, _attrs: special.expit(x),
        sin=lambda x, _attrs: np.sin(x),
        sqrt=lambda x, _attrs: np.sqrt(x),
        square=lambda x, _attrs: np.square(x),
        tanh=lambda x, _attrs: np.tanh(x),
        nn__gelu=lambda x, _attrs: 0.5 * x * (1 + special.erf(x / np.sqrt(2))),
        nn__gelu_tanh=lambda x, _attrs: _gelu_tanh(x),
        nn__leakyrelu=lambda x, attrs: np.where(x > 0, x, x * float(attrs.alpha)),
        nn__silu=lambda x, _attrs: x * special.expit(x),
        nn__softplus=lambda x, attrs: np.logaddexp(0, x * float(attrs.beta)) / float(attrs.beta),
    ),
]

OP_SPECS: dict[str, OpSpec] = {spec.name: spec for spec in _ALL}


def op_function(call: relax.Call) -> Callable[..., Array]:
    """The NumPy function of an elementwise call: (tensors..., scalars..., attributes) -> array."""
    spec = OP_SPECS[str(call.op.name)]
    assert spec.function is not None, f"{spec.name} is not elementwise"
    return spec.function
