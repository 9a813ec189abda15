"""Networks in NumPy float64: what a pass computes before and after, without compiling anything."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tvm import IRModule, relax

from integer_oracle import convolve, convolve_transposed, window_sums
from tvm_quant.ir import bindings, constant_value, op_name
from tvm_quant.op import (
    OP_SPECS,
    is_calibrated,
    scale_of,
    simulated_quantize_numpy,
    spec_of,
)

Array = np.ndarray


def evaluate(mod: IRModule, *inputs: Array) -> list[Array]:
    """Results of `main`, a tuple's fields one by one."""
    values = all_values(mod, *inputs)
    result = values[str(mod["main"].body.body.name)]
    return list(result) if isinstance(result, tuple) else [result]


def evaluate_one(mod: IRModule, *inputs: Array) -> Array:
    """The only result of `main`."""
    (result,) = evaluate(mod, *inputs)
    return result


def all_values(mod: IRModule, *inputs: Array) -> dict[str, Any]:
    """Value of each input and variable of `main`, by name."""
    func = mod["main"]
    values = {str(p.name): np.float64(x) for p, x in zip(func.params, inputs, strict=True)}
    for binding in bindings(func):
        values[str(binding.var.name)] = _value(binding.value, values)
    return values


def _value(expr: relax.Expr, values: Mapping[str, Any]) -> Any:
    if isinstance(expr, relax.Var):
        return values[str(expr.name)]
    if isinstance(expr, relax.Tuple):
        return tuple(_value(field, values) for field in expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return _value(expr.tuple_value, values)[expr.index]
    known = constant_value(expr)
    if known is not None:
        return known.astype("float64")
    name = op_name(expr)
    tensors = [_value(arg, values) for arg in expr.args if not _is_scalar(arg)]
    if name in _OPERATORS:
        return _OPERATORS[name](expr, *tensors)
    scalars = [float(arg.value) for arg in expr.args if _is_scalar(arg)]
    return OP_SPECS[name].function(*tensors, *scalars, expr.attrs)


def _is_scalar(expr: relax.Expr) -> bool:
    return isinstance(expr, relax.ShapeExpr) or (
        constant_value(expr) is None and hasattr(expr, "value")
    )


def _round_to_grid(call: relax.Call, data: Array, *_: Array) -> Array:
    if not is_calibrated(call):
        return data
    return np.float64(simulated_quantize_numpy(data, *scale_of(call), spec_of(call)))


def _convolution(operator: Callable[..., Array], *extra: str) -> Callable[..., Array]:
    """Of any layout: axes move to channels first, and back."""

    def compute(call: relax.Call, data: Array, weight: Array) -> Array:
        names = ("strides", "dilation", "padding", *extra)
        attrs = {name: [int(n) for n in getattr(call.attrs, name)] for name in names}
        layout, kernel = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
        first = "IO" if "transpose" in op_name(call) else "OI"
        space = layout.replace("N", "").replace("C", "")
        result = operator(
            data.transpose([layout.index(axis) for axis in "NC" + space]),
            weight.transpose([kernel.index(axis) for axis in first + space]),
            groups=int(call.attrs.groups),
            **attrs,
        )
        wanted = str(call.attrs.out_layout or layout)
        return result.transpose([("NC" + space).index(axis) for axis in wanted])

    return compute


def _max_pool(call: relax.Call, data: Array) -> Array:
    attrs = call.attrs
    before, after = np.reshape([int(p) for p in attrs.padding], (2, -1))
    edges = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    padded = np.pad(data, edges, constant_values=-np.inf)
    axes = tuple(range(2, data.ndim))
    windows = sliding_window_view(padded, [int(n) for n in attrs.pool_size], axes)
    steps = (slice(None), slice(None), *(slice(None, None, int(s)) for s in attrs.strides))
    return windows[steps].max(axis=tuple(range(data.ndim, windows.ndim)))


def _avg_pool(call: relax.Call, data: Array) -> Array:
    assert not any(int(p) for p in call.attrs.padding)
    window = [int(n) for n in call.attrs.pool_size]
    sums = window_sums(data, window, strides=[int(s) for s in call.attrs.strides])
    return sums / np.prod(window)


def _reduce(operator: Callable[..., Array]) -> Callable[..., Array]:
    def compute(call: relax.Call, data: Array) -> Array:
        axes = None if call.attrs.axis is None else tuple(int(a) for a in call.attrs.axis)
        return operator(data, axis=axes, keepdims=bool(call.attrs.keepdims))

    return compute


_OPERATORS: dict[str, Callable[..., Any]] = {
    "tvm_quant.simulated_quantize": _round_to_grid,
    "relax.nn.conv1d": _convolution(convolve),
    "relax.nn.conv2d": _convolution(convolve),
    "relax.nn.conv3d": _convolution(convolve),
    "relax.nn.conv1d_transpose": _convolution(convolve_transposed, "output_padding"),
    "relax.nn.conv2d_transpose": _convolution(convolve_transposed, "output_padding"),
    "relax.matmul": lambda _call, a, b: a @ b,
    "relax.nn.max_pool2d": _max_pool,
    "relax.nn.avg_pool2d": _avg_pool,
    "relax.mean": _reduce(np.mean),
    "relax.max": _reduce(np.max),
    "relax.concat": lambda call, parts: np.concatenate(parts, int(call.attrs.axis)),
    "relax.reshape": lambda call, data: data.reshape([int(d) for d in call.ty.shape]),
    "relax.permute_dims": lambda call, data: data.transpose([int(a) for a in call.attrs.axes]),
    "relax.nn.softmax": lambda call, data: _softmax(data, int(call.attrs.axis)),
}


def _softmax(data: Array, axis: int) -> Array:
    powers = np.exp(data - data.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)
