"""Activation functions, padding and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_quant.errors import UnsupportedError
from tvm_relay.op.base import number, relay_op

Shape = tuple[Any, ...]
_PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


@relay_op("nn.softmax")
def softmax(data: relax.Expr, /, axis: int = -1) -> relax.Expr:
    return relax.op.nn.softmax(data, axis)


@relay_op("nn.fast_softmax")
def fast_softmax(data: relax.Expr, /, axis: int = -1) -> relax.Expr:
    return relax.op.nn.softmax(data, axis)


@relay_op("nn.log_softmax")
def log_softmax(data: relax.Expr, /, axis: int = -1) -> relax.Expr:
    return relax.op.nn.log_softmax(data, axis)


@relay_op("nn.leaky_relu")
def leaky_relu(data: relax.Expr, /, alpha: float = 0.01) -> relax.Expr:
    return relax.op.nn.leakyrelu(data, alpha)


def _slopes(data: Shape, _alpha: Any, axis: int) -> dict[str, Shape]:
    return {"alpha": (data[axis],)}


@relay_op("nn.prelu", weights=_slopes)
def prelu(data: relax.Expr, alpha: relax.Expr, /, axis: int = 1) -> relax.Expr:
    return relax.op.nn.prelu(data, alpha, axis)


@relay_op("nn.swish")
def swish(data: relax.Expr, /) -> relax.Expr:
    return relax.op.nn.silu(data)


@relay_op("nn.dropout", fields=lambda _attrs: 2, first=True)
def dropout(data: relax.Expr, /, rate: float = 0.5) -> relax.Expr:
    """Of inference: the operand, and a mask of ones."""
    return relax.Tuple([data, relax.op.ones_like(data)])


@relay_op("nn.pad", order=("data", "pad_width", "pad_value", "pad_mode"))
def pad(
    data: relax.Expr,
    pad_value: relax.Expr = 0,
    /,
    pad_width: Sequence[Sequence[int]] = (),
    pad_mode: str = "constant",
) -> relax.Expr:
    if pad_mode not in _PAD_MODES:
        raise UnsupportedError(f"nn.pad in mode '{pad_mode}'; expected one of {[*_PAD_MODES]}.")
    value = float(number(pad_value, "nn.pad: the value"))
    return relax.op.nn.pad(data, _flat(pad_width), _PAD_MODES[pad_mode], value)


@relay_op("nn.mirror_pad")
def mirror_pad(
    data: relax.Expr, /, pad_width: Sequence[Sequence[int]], mode: str = "SYMMETRIC"
) -> relax.Expr:
    if mode != "REFLECT":
        raise UnsupportedError(f"nn.mirror_pad in mode '{mode}'; only REFLECT is converted.")
    return relax.op.nn.pad(data, _flat(pad_width), "reflect")


def _flat(pad_width: Sequence[Sequence[int]]) -> list[int]:
    return [int(size) for pair in pad_width for size in pair]
