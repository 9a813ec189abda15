"""`Match`: what VTA computes instead of a variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.backend.vta.layer import Layer, Tensor
from tvm_quant.ir import constant_value, tensor_shape

Array = npt.NDArray[Any]
Values = dict[relax.Var, Any]  # of the function's variables


@dataclass(frozen=True, kw_only=True)
class Match:
    """Layers that compute an int8 variable from others.

    Attributes:
        var: the variable; the last layer computes it, under its name.
        reads: the variables that come from outside.
        layers: in order.
        tensors: what the layers compute, one each.
        macs: multiplications of the network that they do.
    """

    var: relax.Var
    reads: tuple[relax.Var, ...]
    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    macs: int = 0


def single(
    var: relax.Var, layer: Layer, reads: tuple[relax.Var, ...], *, macs: int = 0
) -> Match | None:
    """The match of one layer; None where shapes are not those of VTA's tensors."""
    tensor = tensor_of(var)
    if tensor is None or any(tensor_of(read) is None for read in reads):
        return None
    return Match(var=var, reads=reads, layers=(layer,), tensors=(tensor,), macs=macs)


def tensor_of(var: relax.Var) -> Tensor | None:
    """The tensor of an int8 variable of known shape, (N, C, H, W) or (M, K)."""
    shape = tensor_shape(var)
    if shape is None or len(shape) not in (2, 4) or str(var.ty.dtype) != "int8":
        return None
    extents = tuple(extent for extent in shape if extent)
    if len(extents) != len(shape):
        return None
    return Tensor(name=str(var.name), shape=extents)


def per_channel(expr: relax.Expr, like: relax.Expr) -> Array | None:
    """Values of a constant along axis 1 of `like`: int64 (C,); None if it varies along others."""
    known, shape = constant_value(expr), tensor_shape(like)
    if known is None or shape is None or len(shape) < 2 or known.ndim > len(shape):
        return None
    known = known.reshape((1,) * (len(shape) - known.ndim) + known.shape).astype("int64")
    if any(size != 1 for axis, size in enumerate(known.shape) if axis != 1):
        return None
    return np.broadcast_to(known.reshape(-1), (shape[1] or 1,))


def identity(channels: int) -> Array:
    """Weights of a depthwise convolution that copies: int8 (C, 1, 1, 1)."""
    return np.ones((channels, 1, 1, 1), np.int8)
