"""VGG: stages of convolutions of 3 x 3, a pool behind each, and three dense layers.

Source: Simonyan and Zisserman, arXiv:1409.1556, table 1, columns A, B, D and E.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm.runtime import Tensor

from tvm_quant.errors import FrontendError
from tvm_relay.expr import Expr, Function, var
from tvm_relay.module import Module
from tvm_relay.namespaces import nn
from tvm_relay.testing.init import create_workload
from tvm_relay.testing.layers import (
    add_bias,
    batch_norm_infer,
    classifier,
    conv2d,
    dense_add_bias,
)

_CHANNELS = (64, 128, 256, 512, 512)
#: Depth: convolutions of each stage.
_CONVOLUTIONS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
_HIDDEN = 4096


def get_net(
    batch_size: int,
    image_shape: Sequence[int],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Function:
    """The network: images (N, C, H, W) of at least 32 x 32 to probabilities (N, num_classes).

    Args:
        num_layers: 11, 13, 16 or 19.
        batch_norm: normalize behind each convolution.

    Raises:
        FrontendError: another depth.
    """
    if num_layers not in _CONVOLUTIONS:
        raise FrontendError(f"num_layers is {num_layers}; expected one of {list(_CONVOLUTIONS)}.")
    body: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    plan = zip(_CHANNELS, _CONVOLUTIONS[num_layers], strict=True)
    for stage, (channels, count) in enumerate(plan, 1):
        for index in range(1, count + 1):
            body = _convolution(body, f"{stage}_{index}", channels, batch_norm)
        body = nn.max_pool2d(body, pool_size=(2, 2), strides=(2, 2))
    body = nn.batch_flatten(body)
    for name in ("fc6", "fc7"):
        body = nn.relu(dense_add_bias(body, units=_HIDDEN, name=name))
        body = nn.dropout(body, rate=0.5)
    return classifier(body, num_classes, "fc8")


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> tuple[Module, dict[str, Tensor]]:
    """The network with values: see `get_net` and `create_workload`."""
    net = get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm)
    return create_workload(net)


def _convolution(data: Expr, place: str, channels: int, batch_norm: bool) -> Expr:
    name = f"conv{place}"
    body: Expr = conv2d(data, name=name, channels=channels, kernel_size=(3, 3), padding=(1, 1))
    body = add_bias(body, name)
    if batch_norm:
        body = batch_norm_infer(body, name=f"bn{place}")
    rectified: Expr = nn.relu(body)
    return rectified
