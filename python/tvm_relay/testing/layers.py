"""Layers whose parameters are variables with the name of the layer: conv1_weight, bn1_gamma, ...

>>> from tvm_relay.expr import var
>>> conv2d(var("data"), name="conv1", channels=8, kernel_size=(3, 3)).args
(%data, %conv1_weight)
"""

from __future__ import annotations

from typing import Any

from tvm_quant.errors import FrontendError
from tvm_relay.expr import Call, Expr, Function, var
from tvm_relay.free_vars import free_vars
from tvm_relay.namespaces import nn

#: Layout of data: layouts of kernels of convolutions, and of depthwise ones.
_KERNELS = {"NCHW": ("OIHW", "OIHW"), "NHWC": ("HWIO", "HWOI")}


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """The layout of kernels beside data of a layout.

    Raises:
        FrontendError: a layout other than NCHW and NHWC.
    """
    if data_layout not in _KERNELS:
        raise FrontendError(f"The layout is {data_layout!r}; expected one of {sorted(_KERNELS)}.")
    return _KERNELS[data_layout][is_depthwise]


def conv2d(data: Expr, weight: Expr | None = None, *, name: str, **attrs: Any) -> Call:
    """A convolution without bias; attributes are those of `relay.nn.conv2d`."""
    call: Call = nn.conv2d(data, _given(weight, name, "weight"), **attrs)
    return call


def batch_norm_infer(
    data: Expr,
    gamma: Expr | None = None,
    beta: Expr | None = None,
    moving_mean: Expr | None = None,
    moving_var: Expr | None = None,
    *,
    name: str,
    **attrs: Any,
) -> Expr:
    """A batch normalization by fixed mean and variance; attributes of `relay.nn.batch_norm`."""
    roles = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    params = [_given(value, name, role) for role, value in roles.items()]
    normal: Expr = nn.batch_norm(data, *params, **attrs)[0]
    return normal


def dense_add_bias(
    data: Expr,
    weight: Expr | None = None,
    bias: Expr | None = None,
    units: int | None = None,
    *,
    name: str,
    **attrs: Any,
) -> Call:
    """A dense layer with bias; attributes are those of `relay.nn.dense`."""
    product = nn.dense(data, _given(weight, name, "weight"), units, **attrs)
    return add_bias(product, name, bias, axis=-1)


def add_bias(data: Expr, name: str, bias: Expr | None = None, axis: int = 1) -> Call:
    """A bias along an axis."""
    call: Call = nn.bias_add(data, _given(bias, name, "bias"), axis=axis)
    return call


def classifier(data: Expr, units: int, name: str) -> Function:
    """A whole network: probabilities of classes, (N, units), from features (N, C)."""
    return function(nn.softmax(dense_add_bias(data, units=units, name=name)))


def function(result: Expr) -> Function:
    """The function of all variables that a value reads."""
    return Function(tuple(free_vars(result)), result)


def _given(value: Expr | None, name: str, role: str) -> Expr:
    return var(f"{name}_{role}") if value is None else value
