"""Normalizations."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_quant.errors import UnsupportedError
from tvm_relay.op.base import axes_of, emit, rank, relay_op, scalar, shape

Shape = tuple[Any, ...]


def _vectors(*names: str) -> Any:
    """Weights that are vectors along `axis`."""

    def weights(data: Shape, *_rest: Any, axis: int, **_attrs: Any) -> dict[str, Shape]:
        return dict.fromkeys(names, (data[axis],))

    return weights


@relay_op(
    "nn.batch_norm",
    fields=lambda _attrs: 3,
    weights=_vectors("gamma", "beta", "moving_mean", "moving_var"),
)
def batch_norm(
    data: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    moving_mean: relax.Expr,
    moving_var: relax.Expr,
    /,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> relax.Expr:
    """In inference form: mean and variance are those that are passed."""
    return relax.op.nn.batch_norm(
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        axis=axis % rank(data),
        epsilon=epsilon,
        center=center,
        scale=scale,
        training=False,
    )


@relay_op("nn.layer_norm", weights=_vectors("gamma", "beta"))
def layer_norm(
    data: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    /,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> relax.Expr:
    return relax.op.nn.layer_norm(data, gamma, beta, [axis], epsilon, center, scale)


@relay_op("nn.group_norm", weights=_vectors("gamma", "beta"))
def group_norm(
    data: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    /,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> relax.Expr:
    channel = axis % rank(data)
    axes = [a for a in range(1, rank(data)) if a != channel]
    return relax.op.nn.group_norm(
        data, gamma, beta, num_groups, channel, axes, epsilon, center, scale
    )


@relay_op("nn.instance_norm", weights=_vectors("gamma", "beta"))
def instance_norm(
    data: relax.Expr,
    gamma: relax.Expr,
    beta: relax.Expr,
    /,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> relax.Expr:
    channel = axis % rank(data)
    axes = [a for a in range(1, rank(data)) if a != channel]
    return relax.op.nn.instance_norm(data, gamma, beta, channel, axes, epsilon, center, scale)


@relay_op("nn.l2_normalize")
def l2_normalize(data: relax.Expr, /, eps: float, axis: Any = None) -> relax.Expr:
    axes = axes_of(axis, rank(data))
    total = emit(relax.op.sum(emit(relax.op.multiply(data, data)), axes, True))
    length = emit(relax.op.sqrt(emit(relax.op.maximum(total, scalar(eps, data)))))
    return relax.op.divide(data, length)


@relay_op("nn.lrn")
def lrn(
    data: relax.Expr,
    /,
    size: int = 5,
    axis: int = 1,
    bias: float = 2,
    alpha: float = 1e-5,
    beta: float = 0.75,
    norm_region: str = "ACROSS_CHANNELS",
) -> relax.Expr:
    """X / (bias + alpha / size * sum of the squares of `size` neighbours along axis) ** beta."""
    if norm_region != "ACROSS_CHANNELS":
        raise UnsupportedError(f"nn.lrn over {norm_region}; only ACROSS_CHANNELS is converted.")
    axis, half = axis % rank(data), size // 2
    around = [pad for a in range(rank(data)) for pad in ((half, half) if a == axis else (0, 0))]
    padded = emit(relax.op.nn.pad(emit(relax.op.multiply(data, data)), around))
    extent = shape(data)[axis]
    parts = [
        emit(relax.op.strided_slice(padded, [axis], [i], [i + extent], [1])) for i in range(size)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = emit(relax.op.add(total, part))
    mean = emit(relax.op.multiply(total, scalar(alpha / size, data)))
    base = emit(relax.op.add(mean, scalar(bias, data)))
    return relax.op.divide(data, emit(relax.op.power(base, scalar(beta, data))))
