"""Operators of a network that `mxnet.contrib.quantization` made.

    quantize_v2(x) -> codes, low, high       x' = simulated_quantize(x)
    quantized_conv(codes, weight, ...)       y  = R.nn.conv2d(x', simulated_quantize(weight))
    requantize(sums, low, high)              y' = simulated_quantize(y)
    dequantize(codes, low, high)             y'

A tensor of codes stands here as the real numbers that they mean, with its grid in `Node.grids`; its
range, which MXNet computes beside it, as None. Sums of 32 bits have no grid: they are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.frontend.mxnet.converters import conv, norm, pool, shape
from tvm_quant.frontend.mxnet.converters.grids import Grid
from tvm_quant.frontend.mxnet.converters.node import Converter, Node, Results
from tvm_quant.ir import constant, constant_value
from tvm_quant.op import Convention, Kind, simulated_quantize

R = relax.op

#: By type of the codes in the file.
_SIGNED = {"int8": True, "uint8": False}

INT32_MAX = 2**31 - 1


def quantize(node: Node) -> Results:
    """`_contrib_quantize_v2`: a tensor in float to codes of a calibrated range."""
    return _coded(node, node.data, _calibrated_grid(node))


def requantize(node: Node) -> Results:
    """Sums of 32 bits to codes of a calibrated range."""
    return _coded(node, node.data, _calibrated_grid(node))


def dequantize(node: Node) -> Results:
    """Codes to the numbers that they mean, which stand here already."""
    return real(node, 0)


def contraction(convert: Converter) -> Converter:
    """Convolution and FullyConnected: data, weight and a bias, then the range of each."""

    def converted(node: Node) -> Results:
        data, weight = real(node, 0, _after(node, 0)), real(node, 1, _after(node, 1))
        inputs = [data, weight]
        if not node.attributes.flag("no_bias"):
            inputs.append(_bias(node, _grid_of(node, data).scale * _grid_of(node, weight).scale))
        result = convert(replace(node, inputs=inputs))
        assert isinstance(result, relax.Expr)
        return _sums(node, result)

    return converted


def two_operands(operator: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    """A sum or product of 32 bits of two tensors; codes where the node has a range of its own."""

    def convert(node: Node) -> Results:
        result = operator(real(node, 0), real(node, 1))
        if "min_calib_range" in node.attributes:
            return _coded(node, node.emit(result), _calibrated_grid(node))
        return _sums(node, result)

    return convert


def pooling(node: Node) -> Results:
    """Codes of the grid of the operand; averages are rounded to it, maxima are on it."""
    if node.attributes.text("pool_type", "max") == "max":
        return moved(pool.pooling)(node)
    data = real(node, 0)
    result = pool.pooling(replace(node, inputs=[data]))
    return _coded(node, node.emit(result), _grid_of(node, data))


def moved(convert: Converter) -> Converter:
    """Operators that only move or clamp codes, so that no quantizer is needed behind them."""

    def converted(node: Node) -> Results:
        data = real(node, 0)
        result = convert(replace(node, inputs=[data]))
        assert isinstance(result, relax.Expr)
        var = node.emit(result)
        node.grids[var] = _grid_of(node, data)
        return [var, None, None]

    return converted


def concat(node: Node) -> Results:
    """Tensors at the widest of their ranges; unsigned if all are."""
    count = node.attributes.integer("num_args")
    parts = [real(node, index) for index in range(count)]
    grids = [_grid_of(node, part) for part in parts]
    widest = Grid(reach=max(g.reach for g in grids), signed=any(g.signed for g in grids))
    aligned = [
        part if grid == widest else _quantizer(node, part, widest)
        for part, grid in zip(parts, grids, strict=True)
    ]
    var = node.emit(shape.concat(replace(node, inputs=aligned)))
    node.grids[var] = widest
    return [var, None, None]


def batch_norm(node: Node) -> Results:
    """Codes to codes of a calibrated range."""
    inputs = [real(node, 0), *(node.operand(index) for index in range(1, 5))]
    result = node.emit(norm.batch_norm(replace(node, inputs=inputs)))
    return _coded(node, result, _calibrated_grid(node))


def activation(node: Node) -> relax.Expr:
    """The only one that MXNet quantizes is relu."""
    kind = node.attributes.text("act_type", "relu")
    if kind != "relu":
        raise ValueError(f"its activation is '{kind}'; MXNet quantizes relu alone")
    return R.nn.relu(node.data)


# Tensors of codes -------------------------------------------------------------


def real(node: Node, index: int, ranges: int | None = None) -> relax.Var:
    """The numbers that an operand of codes means.

    Args:
        ranges: where the smallest number stands, behind which the largest does; needed for
            parameters, whose codes become a quantized constant.
    """
    value = node.operand(index)
    codes = constant_value(value)
    if codes is None:
        assert isinstance(value, relax.Var)
        return value
    if ranges is None or str(codes.dtype) not in _SIGNED:
        raise ValueError(f"its input {index} is a parameter of type {codes.dtype}; expected codes")
    grid = _grid_of_parameter(node, ranges, str(codes.dtype))
    numbers = _codes_of(node, index, ranges).astype("float32") * np.float32(grid.scale)
    return _quantizer(node, constant(numbers), grid, kind=Kind.WEIGHT)


def _grid_of(node: Node, tensor: relax.Var) -> Grid:
    grid = node.grids.get(tensor)
    if grid is None:
        raise ValueError("it works on a tensor that is not quantized to 8 bits")
    return grid


def _after(node: Node, position: int) -> int:
    """Where the range of an operand with weights stands: behind all operands."""
    return (2 if node.attributes.flag("no_bias") else 3) + 2 * position


def _grid_of_parameter(node: Node, ranges: int, dtype: str) -> Grid:
    ends = [node.known(ranges + i, "range of a parameter").item() for i in (0, 1)]
    return _grid(ends if any(ends) else (0.0, 1.0), signed=_SIGNED[dtype])


def _codes_of(node: Node, index: int, ranges: int) -> npt.NDArray[np.generic]:
    """The codes of a parameter. Of one that is zero everywhere MXNet makes arbitrary ones."""
    codes = node.known(index, "codes")
    empty = not any(node.known(ranges + i, "range of a parameter").item() for i in (0, 1))
    return np.zeros_like(codes) if empty else codes


def _calibrated_grid(node: Node) -> Grid:
    """The grid of the calibrated range; without one MXNet takes that of each batch."""
    names = ("min_calib_range", "max_calib_range")
    if any(name not in node.attributes for name in names):
        raise ValueError(
            "it takes its range from each batch at run time; quantize the network with calib_mode "
            "'naive' or 'entropy', so that the range stands in the node"
        )
    low, high = (node.attributes.number(name) for name in names)
    kind = node.attributes.text("out_type", "int8")
    kinds = {**_SIGNED, "auto": low < 0}
    if kind not in kinds:
        raise ValueError(f"its codes are of type '{kind}'; expected int8, uint8 or auto")
    return _grid((low, high), signed=kinds[kind])


def _grid(ends: Sequence[float], *, signed: bool) -> Grid:
    reach = max(abs(end) for end in ends)
    if not 0 < reach < np.inf:
        raise ValueError(f"its range is {ends[0]} to {ends[1]}; calibrate the network again")
    return Grid(reach=reach, signed=signed)


def _coded(node: Node, data: relax.Expr, grid: Grid) -> Results:
    return [_quantizer(node, data, grid), None, None]


def _quantizer(node: Node, data: relax.Expr, grid: Grid, kind: Kind | None = None) -> relax.Var:
    """A variable bound to a quantizer, scaled as oneDNN does: a float32 factor, ties to even."""
    is_input = isinstance(data, relax.Var) and node.builder.lookup_binding(data) is None
    call = simulated_quantize(
        data,
        np.float32(grid.scale),
        spec=grid.spec,
        kind=kind or (Kind.INPUT if is_input else Kind.ACTIVATION),
        convention=Convention.FLOAT32,
    )
    var = node.emit(call)
    node.grids[var] = grid
    return var


def _sums(node: Node, result: relax.Expr) -> Results:
    return [node.emit(result), None, None]


def _bias(node: Node, scale: float) -> relax.Expr:
    """A bias in steps of the products, as MXNet's kernels take it."""
    bias = node.known(2, "bias")
    if str(bias.dtype) in _SIGNED:
        grid = _grid_of_parameter(node, _after(node, 2), str(bias.dtype))
        bias = _codes_of(node, 2, _after(node, 2))
        bias = np.rint(bias.astype("float64") * (grid.scale / scale))
        codes = np.clip(bias, -INT32_MAX, INT32_MAX).astype("int32")
    elif str(bias.dtype) == "int32":
        codes = np.asarray(bias)
    else:
        return node.emit(node.operand(2))
    return node.emit(
        R.dequantize(constant(codes), constant(np.float32(scale)), constant(np.int32(0)))
    )


CONVERTERS: dict[str, Converter] = {
    "_contrib_dequantize": dequantize,
    "_contrib_quantize_v2": quantize,
    "_contrib_quantized_act": moved(activation),
    "_contrib_quantized_batch_norm": batch_norm,
    "_contrib_quantized_concat": concat,
    "_contrib_quantized_conv": contraction(conv.convolution),
    "_contrib_quantized_elemwise_add": two_operands(R.add),
    "_contrib_quantized_elemwise_mul": two_operands(R.multiply),
    "_contrib_quantized_flatten": moved(shape.flatten),
    "_contrib_quantized_fully_connected": contraction(conv.fully_connected),
    "_contrib_quantized_pooling": pooling,
    "_contrib_requantize": requantize,
}
