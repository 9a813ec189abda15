"""Functions of one element, arithmetic, comparisons, reductions and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np
from tvm import relax

from tvm_quant.frontend.mxnet.converters.node import Converter, Node
from tvm_quant.ir import constant_value

R = relax.op

Unary = Callable[[relax.Expr], relax.Expr]
Binary = Callable[[relax.Expr, relax.Expr], relax.Expr]


def function(operator: Unary) -> Converter:
    """One operand, no attributes."""
    return lambda node: operator(node.data)


def arithmetic(operator: Binary) -> Converter:
    """Two operands, of one shape or broadcast."""
    return lambda node: operator(node.data, node.operand(1))


def with_scalar(operator: Binary, *, reverse: bool = False) -> Converter:
    """One operand and a number, which stands on the left where `reverse` is set."""

    def convert(node: Node) -> relax.Expr:
        number = node.scalar(node.attributes.number("scalar", 1.0))
        return operator(number, node.data) if reverse else operator(node.data, number)

    return convert


def comparison(operator: Binary) -> Binary:
    """0 or 1 in the type of the operands, as MXNet has it."""
    return lambda a, b: R.astype(operator(a, b), str(a.ty.dtype))


def sum_of_all(node: Node) -> relax.Expr:
    """Any number of tensors."""
    return reduce(lambda a, b: R.add(node.emit(a), b), node.operands())


def clip(node: Node) -> relax.Expr:
    """Between two numbers."""
    return R.clip(node.data, node.attributes.number("a_min"), node.attributes.number("a_max"))


def cast(node: Node) -> relax.Expr:
    """To another type."""
    return R.astype(node.data, node.attributes.text("dtype", "float32"))


def identity(node: Node) -> relax.Expr:
    """Nothing at inference: Dropout, BlockGrad, and the losses of regressions."""
    return node.data


# Activations ------------------------------------------------------------------


def softsign(data: relax.Expr) -> relax.Expr:
    """The function x / (1 + |x|)."""
    one = relax.const(1, str(data.ty.dtype))
    return R.divide(data, R.add(R.abs(data), one))


def reciprocal(data: relax.Expr) -> relax.Expr:
    """The function 1 / x."""
    return R.divide(relax.const(1, str(data.ty.dtype)), data)


def log1p(data: relax.Expr) -> relax.Expr:
    """The logarithm of 1 + x."""
    return R.log(R.add(data, relax.const(1, str(data.ty.dtype))))


def expm1(data: relax.Expr) -> relax.Expr:
    """The exponential of x, less 1."""
    return R.subtract(R.exp(data), relax.const(1, str(data.ty.dtype)))


def smooth_l1(node: Node) -> relax.Expr:
    """A parabola up to 1 / scalar**2, then a line."""
    square = node.attributes.number("scalar", 1.0) ** 2
    size = node.emit(R.abs(node.data))
    near = node.emit(R.multiply(node.emit(R.multiply(size, size)), node.scalar(0.5 * square)))
    far = node.emit(R.subtract(size, node.scalar(0.5 / square)))
    return R.where(node.emit(R.less(size, node.scalar(1 / square))), near, far)


def where(node: Node) -> relax.Expr:
    """The second operand where the first is not 0, else the third."""
    zero = node.scalar(0)
    chosen = node.emit(R.not_equal(node.data, zero))
    return R.where(chosen, node.operand(1), node.operand(2))


def one_hot(node: Node) -> relax.Expr:
    """A row for each index."""
    on, off = node.attributes.number("on_value", 1.0), node.attributes.number("off_value", 0.0)
    indices = node.emit(R.astype(node.data, "int32"))
    rows = R.one_hot(indices, float(on), float(off), node.attributes.integer("depth"))
    return R.astype(node.emit(rows), node.attributes.text("dtype", "float32"))


def hard_sigmoid(node: Node) -> relax.Expr:
    """A line, alpha * x + beta, between 0 and 1."""
    alpha, beta = node.attributes.number("alpha", 0.2), node.attributes.number("beta", 0.5)
    scaled = node.emit(R.multiply(node.data, node.scalar(alpha)))
    return R.clip(node.emit(R.add(scaled, node.scalar(beta))), 0.0, 1.0)


_ACTIVATIONS: dict[str, Unary] = {
    "relu": R.nn.relu,
    "sigmoid": R.sigmoid,
    "softrelu": R.nn.softplus,
    "softsign": softsign,
    "tanh": R.tanh,
}


def activation(node: Node) -> relax.Expr:
    """A function by name."""
    return _chosen(node, _ACTIVATIONS, "")(node.data)


def _leaky(node: Node) -> relax.Expr:
    return R.nn.leakyrelu(node.data, node.attributes.number("slope", 0.25))


def _random_leaky(node: Node) -> relax.Expr:
    low, high = (
        node.attributes.number("lower_bound", 0.125),
        node.attributes.number("upper_bound", 0.334),
    )
    return R.nn.leakyrelu(node.data, (low + high) / 2)


def _prelu(node: Node) -> relax.Expr:
    slope = constant_value(node.operand(1))
    if slope is not None and slope.size == 1:
        return R.nn.leakyrelu(node.data, float(slope.flat[0]))
    return R.nn.prelu(node.data, node.emit(R.reshape(node.operand(1), (-1,))), 1)


def _elu(node: Node) -> relax.Expr:
    """Written so that no exponential of a large number is taken."""
    slope = node.attributes.number("slope", 0.25)
    small = node.emit(R.minimum(node.data, node.scalar(0)))
    curve = node.emit(R.subtract(node.emit(R.exp(small)), node.scalar(1)))
    return R.add(node.emit(R.nn.relu(node.data)), node.emit(R.multiply(curve, node.scalar(slope))))


_LEAKY: dict[str, Converter] = {
    "elu": _elu,
    "gelu": function(R.nn.gelu),
    "leaky": _leaky,
    "prelu": _prelu,
    "rrelu": _random_leaky,
    "selu": function(R.nn.selu),
}


def leaky_relu(node: Node) -> relax.Expr:
    """LeakyReLU, in truth a family of activations."""
    result = _chosen(node, _LEAKY, "leaky")(node)
    assert isinstance(result, relax.Expr)
    return result


def _chosen(
    node: Node, table: dict[str, Callable[..., relax.Expr]], default: str
) -> Callable[..., relax.Expr]:
    name = node.attributes.text("act_type", default)
    if name not in table:
        raise ValueError(f"its activation is '{name}'; supported are {', '.join(table)}")
    return table[name]


# Softmax ----------------------------------------------------------------------


def softmax(operator: Callable[[relax.Expr, int], relax.Expr]) -> Converter:
    """Along one axis, at a temperature."""

    def convert(node: Node) -> relax.Expr:
        if node.attributes.flag("use_length"):
            raise ValueError("it has a length for each row; only whole rows are supported")
        data = node.data
        temperature = node.attributes.number("temperature", 1.0)
        if temperature != 1.0:
            data = node.emit(R.divide(data, node.scalar(temperature)))
        return operator(data, node.axis("axis", -1))

    return convert


def softmax_output(node: Node) -> relax.Expr:
    """The loss of classifiers: probabilities of each sample, or of each place of it."""
    if node.attributes.flag("multi_output"):
        return R.nn.softmax(node.data, 1)
    if node.attributes.flag("preserve_shape") or node.rank() == 2:
        return R.nn.softmax(node.data, node.rank() - 1)
    flat = node.emit(R.reshape(node.data, (node.shape()[0], -1)))
    return R.reshape(node.emit(R.nn.softmax(flat, 1)), node.shape())


def softmax_activation(node: Node) -> relax.Expr:
    """Of each sample, or along the channels."""
    if node.attributes.text("mode", "instance") == "channel":
        return R.nn.softmax(node.data, 1)
    flat = node.emit(R.reshape(node.data, (node.shape()[0], -1)))
    return R.reshape(node.emit(R.nn.softmax(flat, 1)), node.shape())


# Reductions -------------------------------------------------------------------


def reduction(operator: Callable[..., relax.Expr]) -> Converter:
    """Over some axes, all but some, or all."""

    def convert(node: Node) -> relax.Expr:
        rank = node.rank()
        axes = [axis for axis in node.attributes.slots("axis", ()) if axis is not None]
        axes = [axis % rank for axis in axes] or list(range(rank))
        if node.attributes.flag("exclude"):
            axes = [axis for axis in range(rank) if axis not in axes]
        keep = node.attributes.flag("keepdims")
        result = operator(node.data, axes, keepdims=keep)
        # MXNet has no tensors without axes: one number is a vector of one.
        return result if keep or len(axes) < rank else R.reshape(node.emit(result), (1,))

    return convert


def norm(node: Node) -> relax.Expr:
    """The sum of magnitudes, or the root of the sum of squares."""
    order = node.attributes.integer("ord", 2)
    if order not in (1, 2):
        raise ValueError(f"its order is {order}; expected 1 or 2")
    parts = R.abs(node.data) if order == 1 else R.multiply(node.data, node.data)
    total = reduction(R.sum)(replace(node, inputs=[node.emit(parts)]))
    assert isinstance(total, relax.Expr)
    return total if order == 1 else R.sqrt(node.emit(total))


def index_of(operator: Callable[..., relax.Expr]) -> Converter:
    """The index of the largest or smallest element, as float32."""

    def convert(node: Node) -> relax.Expr:
        axis = node.axis("axis", -1)
        found = operator(node.data, axis, keepdims=node.attributes.flag("keepdims"))
        return R.astype(node.emit(found), "float32")

    return convert


# Products ---------------------------------------------------------------------


def dot(node: Node) -> relax.Expr:
    """The last axis of the left with the first axis of the right, of matrices or vectors."""
    if max(node.rank(), len(node.shape(1))) > 2:
        raise ValueError("it multiplies tensors of more than 2 axes; use batch_dot")
    return _product(node)


def batch_dot(node: Node) -> relax.Expr:
    """Matrices by samples."""
    return _product(node)


def _product(node: Node) -> relax.Expr:
    left, right = (
        _turned(node, index) if node.attributes.flag(flag) else node.operand(index)
        for index, flag in enumerate(("transpose_a", "transpose_b"))
    )
    return R.matmul(left, right)


def _turned(node: Node, index: int) -> relax.Expr:
    axes = list(range(len(node.shape(index))))
    axes[-2:] = axes[:-3:-1]
    return node.emit(R.permute_dims(node.operand(index), axes))


def filled(value: float) -> Converter:
    """_zeros, _ones and _full: a constant."""

    def convert(node: Node) -> relax.Expr:
        dtype = node.attributes.text("dtype", "float32")
        number = np.full(
            node.attributes.sizes("shape"), node.attributes.number("value", value), dtype
        )
        return relax.const(number, dtype)

    return convert
