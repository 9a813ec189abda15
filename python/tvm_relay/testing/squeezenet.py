"""SqueezeNet: fire modules, which squeeze channels and expand them in two branches.

Source: Iandola et al., arXiv:1602.07360, table 1 (version 1.0); version 1.1 is the authors' release
of that number, https://github.com/forresti/SqueezeNet: smaller windows, earlier pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm.runtime import Tensor

from tvm_quant.errors import FrontendError
from tvm_relay.expr import Expr, Function, var
from tvm_relay.module import Module
from tvm_relay.namespaces import nn, public
from tvm_relay.testing.init import create_workload
from tvm_relay.testing.layers import add_bias, conv2d, function

#: Channels of each fire module: squeezed, and expanded by each of its two branches.
_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))


@dataclass(frozen=True, kw_only=True)
class _Version:
    """Channels and window of the first convolution; fire modules behind which a pool stands."""

    channels: int
    size: int
    pools: tuple[int, ...]


_VERSIONS = {
    "1.0": _Version(channels=96, size=7, pools=(3, 7)),
    "1.1": _Version(channels=64, size=3, pools=(2, 4)),
}


def get_net(
    batch_size: int,
    image_shape: Sequence[int],
    num_classes: int,
    version: str,
    dtype: str,
) -> Function:
    """The network: images (N, C, H, W) to probabilities (N, num_classes).

    Raises:
        FrontendError: a version other than "1.0" and "1.1".
    """
    if version not in _VERSIONS:
        raise FrontendError(f"version is {version!r}; expected one of {sorted(_VERSIONS)}.")
    chosen = _VERSIONS[version]
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _pooled(_rectified(data, "conv1", chosen.channels, chosen.size, stride=2))
    for index, (squeezed, expanded) in enumerate(_FIRES, 1):
        body = fire(body, f"fire{index}", squeezed, expanded)
        if index in chosen.pools:
            body = _pooled(body)
    body = _rectified(nn.dropout(body, rate=0.5), "conv_final", num_classes, 1)
    return function(nn.softmax(nn.batch_flatten(nn.global_avg_pool2d(body))))


def fire(data: Expr, name: str, squeezed: int, expanded: int) -> Expr:
    """A fire module; its result has twice `expanded` channels."""
    narrow = _rectified(data, f"{name}_input_conv", squeezed, 1)
    left = _rectified(narrow, f"{name}_left_conv", expanded, 1)
    right = _rectified(narrow, f"{name}_right_conv", expanded, 3)
    joined: Expr = public("concatenate")((left, right), axis=1)
    return joined


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[Module, dict[str, Tensor]]:
    """The network with values: see `get_net` and `create_workload`."""
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype))


def _rectified(data: Expr, name: str, channels: int, size: int, stride: int = 1) -> Expr:
    body = conv2d(
        data,
        name=name,
        channels=channels,
        kernel_size=(size, size),
        strides=(stride, stride),
        padding=(size // 2, size // 2),
    )
    rectified: Expr = nn.relu(add_bias(body, name))
    return rectified


def _pooled(data: Expr) -> Expr:
    pooled: Expr = nn.max_pool2d(data, pool_size=(3, 3), strides=(2, 2))
    return pooled
