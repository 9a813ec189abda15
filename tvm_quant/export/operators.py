"""`OPERATORS`: one row for each Relax operator that can be written, by its name.

A writer gets the graph, the call, names of its tensor operands and the wanted name of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from tvm_quant.errors import UnsupportedError
from tvm_quant.export.graph import Graph
from tvm_quant.ir import op_name, tensor_shape


@dataclass(frozen=True, kw_only=True)
class Written:
    """A call that is written.

    Attributes:
        graph: takes the nodes.
        call: the call.
        inputs: names of its tensor operands, tuples flattened.
        output: wanted name of the result.
        node: the user's name, for messages.
    """

    graph: Graph
    call: relax.Call
    inputs: list[str]
    output: str
    node: str

    def add(self, operator: str, *more: str, **attributes: Any) -> str:
        """The node that computes the result from all operands and `more`."""
        return self.graph.add(operator, [*self.inputs, *more], self.output, **attributes)

    def refuse(self, why: str) -> UnsupportedError:
        """The error for a call that ONNX cannot say."""
        return UnsupportedError(
            f"Node '{self.node}' ({op_name(self.call)}) cannot be written as ONNX: {why}. Only "
            "networks that came from ONNX, with its layouts, can go back."
        )


Writer = Callable[[Written], str]


def _plain(operator: str) -> Writer:
    return lambda w: w.add(operator)


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values]


def _check_layout(w: Written, layout: str) -> None:
    if not layout.startswith("NC"):
        raise w.refuse(f"its layout is {layout}, not channels first")


def _convolution(w: Written) -> str:
    attrs = w.call.attrs
    _check_layout(w, str(attrs.data_layout))
    if not str(attrs.kernel_layout).startswith("OI"):
        raise w.refuse(f"the layout of its kernel is {attrs.kernel_layout}")
    return w.add("Conv", **_window(attrs), group=int(attrs.groups))


def _transposed(w: Written) -> str:
    attrs = w.call.attrs
    _check_layout(w, str(attrs.data_layout))
    if not str(attrs.kernel_layout).startswith("IO"):
        raise w.refuse(f"the layout of its kernel is {attrs.kernel_layout}")
    more = {"output_padding": _ints(attrs.output_padding), "group": int(attrs.groups)}
    return w.add("ConvTranspose", **_window(attrs), **more)


def _window(attrs: Any) -> dict[str, list[int]]:
    return {
        "strides": _ints(attrs.strides),
        "pads": _ints(attrs.padding),
        "dilations": _ints(attrs.dilation),
    }


def _product(w: Written) -> str:
    return w.add("Gemm" if len(w.inputs) == 3 else "MatMul")


def _pool(operator: str, more: Callable[[Any], dict[str, int]]) -> Writer:
    def write(w: Written) -> str:
        attrs = w.call.attrs
        _check_layout(w, str(attrs.layout))
        window = {"kernel_shape": _ints(attrs.pool_size), **_window(attrs)}
        return w.add(operator, ceil_mode=int(bool(attrs.ceil_mode)), **window, **more(attrs))

    return write


def _counted(attrs: Any) -> dict[str, int]:
    return {"count_include_pad": int(attrs.count_include_pad)}


def _global_pool(w: Written) -> str:
    _check_layout(w, str(w.call.attrs.layout))
    if any(int(size) != 1 for size in w.call.attrs.output_size or [0]):
        raise w.refuse("it pools to more than one cell")
    return w.add("GlobalAveragePool")


def _reduction(operator: str) -> Writer:
    def write(w: Written) -> str:
        attrs = w.call.attrs
        axes = [] if attrs.axis is None else [w.graph.integers(_ints(attrs.axis), "axes")]
        return w.add(operator, *axes, keepdims=int(bool(attrs.keepdims)))

    return write


def _reshape(w: Written) -> str:
    """One open dimension at most: ONNX computes it."""
    shape = tensor_shape(w.call) or ()
    if sum(size is None for size in shape) > 1:
        raise w.refuse(f"its result has several open dimensions, {w.call.ty.shape}")
    sizes = [-1 if size is None else size for size in shape]
    return w.add("Reshape", w.graph.integers(sizes, "shape"))


def _static_shape(w: Written) -> str:
    shape = tensor_shape(w.call) or ()
    sizes = [size for size in shape if size is not None]
    if len(sizes) < len(shape):
        raise w.refuse(f"its result has an open dimension, {w.call.ty.shape}")
    return w.graph.integers(sizes, "shape")


def _permute(w: Written) -> str:
    axes = w.call.attrs.axes
    return w.add("Transpose", perm=None if axes is None else _ints(axes))


def _with_axes(operator: str) -> Writer:
    def write(w: Written) -> str:
        axes = w.call.attrs.axis
        named = [] if axes is None else [w.graph.integers(_ints(axes), "axes")]
        return w.add(operator, *named)

    return write


def _slice(w: Written) -> str:
    axes, begin, end, *strides = (_ints(arg.fields) for arg in w.call.args[1:])
    steps = strides[0] if strides else [1] * len(axes)
    names = ("starts", "ends", "axes", "steps")
    values = (begin, end, axes, steps)
    named = [w.graph.integers(v, name) for v, name in zip(values, names, strict=True)]
    return w.add("Slice", *named)


def _resize(w: Written) -> str:
    attrs = w.call.attrs
    _check_layout(w, str(attrs.layout))
    mode = _RESIZE_MODES.get(str(attrs.method))
    if mode is None:
        raise w.refuse(f"its method is {attrs.method}")
    rounding = _NEAREST_MODES.get(str(attrs.rounding_method)) if mode == "nearest" else None
    sizes = _static_shape(w)
    transformation = str(attrs.coordinate_transformation_mode)
    return w.graph.add(
        "Resize",
        [w.inputs[0], "", "", sizes],
        w.output,
        mode=mode,
        coordinate_transformation_mode=transformation,
        nearest_mode=rounding,
    )


_RESIZE_MODES = {"nearest_neighbor": "nearest", "linear": "linear"}
_NEAREST_MODES = {
    "": "round_prefer_floor",
    "round": "round_prefer_floor",
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
    "floor": "floor",
    "ceil": "ceil",
}


def _pad(w: Written) -> str:
    attrs = w.call.attrs
    widths = np.asarray(_ints(attrs.pad_width)).reshape(-1, 2)
    pads = w.graph.integers([int(p) for p in widths.T.reshape(-1)], "pads")
    value = w.graph.constant(np.float32(attrs.pad_value), "value")
    return w.add("Pad", pads, value, mode=str(attrs.pad_mode))


def _clip(w: Written) -> str:
    bounds = [
        w.graph.constant(np.float32(arg.value), name)
        for arg, name in zip(w.call.args[1:], ("min", "max"), strict=True)
    ]
    return w.add("Clip", *bounds)


def _square(w: Written) -> str:
    return w.graph.add("Mul", w.inputs * 2, w.output)


def _rsqrt(w: Written) -> str:
    root = w.graph.add("Sqrt", w.inputs, f"{w.output}_root")
    return w.graph.add("Reciprocal", [root], w.output)


def _silu(w: Written) -> str:
    gate = w.graph.add("Sigmoid", w.inputs, f"{w.output}_gate")
    return w.graph.add("Mul", [*w.inputs, gate], w.output)


def _softplus(w: Written) -> str:
    if float(w.call.attrs.beta) != 1:
        raise w.refuse(f"beta is {float(w.call.attrs.beta)}, not 1")
    return w.add("Softplus")


def _layer_norm(w: Written) -> str:
    axes = _ints(w.call.attrs.axes)
    rank = len(tensor_shape(w.call) or ())
    last = sorted(axis % rank for axis in axes)
    if last != list(range(rank - len(last), rank)):
        raise w.refuse(f"it normalizes along axes {axes}, not the last ones")
    return w.add("LayerNormalization", axis=last[0], epsilon=float(w.call.attrs.epsilon))


OPERATORS: dict[str, Writer] = {
    **dict.fromkeys(
        ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"),
        _convolution,
    ),
    **dict.fromkeys(("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose"), _transposed),
    "relax.matmul": _product,
    **{
        f"relax.{name}": _plain(operator)
        for name, operator in {
            "abs": "Abs",
            "add": "Add",
            "cos": "Cos",
            "divide": "Div",
            "erf": "Erf",
            "exp": "Exp",
            "log": "Log",
            "maximum": "Max",
            "minimum": "Min",
            "multiply": "Mul",
            "negative": "Neg",
            "nn.relu": "Relu",
            "power": "Pow",
            "sigmoid": "Sigmoid",
            "sin": "Sin",
            "sqrt": "Sqrt",
            "subtract": "Sub",
            "tanh": "Tanh",
        }.items()
    },
    **{f"relax.nn.max_pool{rank}d": _pool("MaxPool", lambda _attrs: {}) for rank in (1, 2, 3)},
    **{f"relax.nn.avg_pool{rank}d": _pool("AveragePool", _counted) for rank in (1, 2, 3)},
    "relax.nn.adaptive_avg_pool2d": _global_pool,
    "relax.mean": _reduction("ReduceMean"),
    "relax.max": _reduction("ReduceMax"),
    "relax.min": _reduction("ReduceMin"),
    "relax.sum": _reduction("ReduceSum"),
    "relax.concat": lambda w: w.add("Concat", axis=int(w.call.attrs.axis)),
    "relax.reshape": _reshape,
    "relax.flatten": _reshape,
    "relax.permute_dims": _permute,
    "relax.squeeze": _with_axes("Squeeze"),
    "relax.expand_dims": _with_axes("Unsqueeze"),
    "relax.strided_slice": _slice,
    "relax.broadcast_to": lambda w: w.add("Expand", _static_shape(w)),
    "relax.tile": lambda w: w.add("Tile", w.graph.integers(_ints(w.call.attrs.repeats), "repeats")),
    "relax.take": lambda w: w.add("Gather", axis=int(w.call.attrs.axis or 0)),
    "relax.image.resize2d": _resize,
    "relax.nn.pad": _pad,
    "relax.clip": _clip,
    "relax.square": _square,
    "relax.rsqrt": _rsqrt,
    "relax.nn.gelu": lambda w: w.add("Gelu"),
    "relax.nn.gelu_tanh": lambda w: w.add("Gelu", approximate="tanh"),
    "relax.nn.leakyrelu": lambda w: w.add("LeakyRelu", alpha=float(w.call.attrs.alpha)),
    "relax.nn.silu": _silu,
    "relax.nn.softplus": _softplus,
    "relax.nn.softmax": lambda w: w.add("Softmax", axis=int(w.call.attrs.axis)),
    "relax.nn.log_softmax": lambda w: w.add("LogSoftmax", axis=int(w.call.attrs.axis)),
    "relax.nn.layer_norm": _layer_norm,
}
