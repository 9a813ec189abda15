"""Operators that make tensors from attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from tvm_quant.ir import constant
from tvm_relay.op.base import number, relay_op


@relay_op("full")
def full(fill_value: relax.Expr, /, shape: Sequence[int] = (), dtype: str = "") -> relax.Expr:
    value = number(fill_value, "full: the value")
    return constant(np.full(tuple(shape), value, dtype or value.dtype))


@relay_op("full_like")
def full_like(data: relax.Expr, fill_value: relax.Expr, /) -> relax.Expr:
    return relax.op.full_like(data, fill_value)


@relay_op("zeros")
def zeros(*, shape: Sequence[int], dtype: str) -> relax.Expr:
    return constant(np.zeros(tuple(shape), dtype))


@relay_op("ones")
def ones(*, shape: Sequence[int], dtype: str) -> relax.Expr:
    return constant(np.ones(tuple(shape), dtype))


@relay_op("arange")
def arange(
    start: relax.Expr, stop: relax.Expr, step: relax.Expr, /, dtype: str = "float32"
) -> relax.Expr:
    bounds = [number(value, "arange: a bound").item() for value in (start, stop, step)]
    return constant(np.arange(*bounds, dtype=dtype))
