"""Residual networks whose units begin with normalization and end with the sum.

Source: He et al., Identity Mappings in Deep Residual Networks, arXiv:1603.05027, figure 4e; the
stages are those of arXiv:1512.03385, table 1 and section 4.2 (images of at most 32 rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm.runtime import Tensor

from tvm_quant.errors import FrontendError
from tvm_relay.expr import Expr, Function, var
from tvm_relay.module import Module
from tvm_relay.namespaces import nn
from tvm_relay.testing.init import create_workload
from tvm_relay.testing.layers import batch_norm_infer, classifier, conv2d, conv_kernel_layout

#: Depth: units of each of the four stages.
_UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    269: (3, 30, 48, 8),
}
#: Depths from which units are bottlenecks, for photographs and for CIFAR.
_DEEP, _DEEP_CIFAR = 50, 164
#: Rows of images that networks for CIFAR alone are for, and rows that need no large first window.
_TINY_ROWS, _SMALL_ROWS = 28, 32
_EPSILON = 2e-5


@dataclass(frozen=True, kw_only=True)
class Stages:
    """What a depth means.

    Attributes:
        units: residual units of each stage.
        stem: channels of the first convolution.
        width: channels of the first stage; each further stage has twice as many.
        bottleneck: units of 1 x 1, 3 x 3 and 1 x 1 instead of two of 3 x 3.
    """

    units: Sequence[int]
    stem: int
    width: int
    bottleneck: bool


def stages(num_layers: int, rows: int) -> Stages:
    """The stages of a network of a depth for images of so many rows.

    Raises:
        FrontendError: a depth that no network has.

    >>> stages(20, rows=32).units, stages(50, rows=224).width
    ((3, 3, 3), 256)
    """
    if rows > _TINY_ROWS and num_layers in _UNITS:
        deep = num_layers >= _DEEP
        return Stages(units=_UNITS[num_layers], stem=64, width=256 if deep else 64, bottleneck=deep)
    deep = num_layers >= _DEEP_CIFAR
    units, rest = divmod(num_layers - 2, 9 if deep else 6)
    if rows > _SMALL_ROWS or rest or units < 1:
        raise FrontendError(
            f"No residual network has {num_layers} layers for images of {rows} rows: expected one "
            f"of {list(_UNITS)} above {_TINY_ROWS} rows; up to {_SMALL_ROWS} rows 6 n + 2, or "
            f"9 n + 2 from {_DEEP_CIFAR} on."
        )
    return Stages(units=(units,) * 3, stem=16, width=64 if deep else 16, bottleneck=deep)


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: Sequence[int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The network: images (N, *image_shape) to probabilities (N, num_classes).

    Args:
        num_layers: 18, 34, 50, 101, 152, 200 or 269; on images of up to 32 rows also the depths
            for CIFAR, such as 20, 56, 110 and 164.
        layout: of the images, NCHW or NHWC.

    Raises:
        FrontendError: another depth or layout.
    """
    conv_kernel_layout(layout)  # refuses what is no layout
    rows = image_shape[layout.index("H") - 1]
    plan = stages(num_layers, rows)
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _stem(_normalized(data, "bn_data", layout, scale=False), plan.stem, rows, layout)
    for stage, units in enumerate(plan.units):
        for unit in range(units):
            body = residual_unit(
                body,
                plan.width << stage,
                stride=2 if stage and not unit else 1,
                dim_match=unit > 0,
                name=f"stage{stage + 1}_unit{unit + 1}",
                bottle_neck=plan.bottleneck,
                layout=layout,
            )
    body = nn.relu(_normalized(body, "bn1", layout))
    features = nn.batch_flatten(nn.global_avg_pool2d(body, layout=layout))
    return classifier(features, num_classes, "fc1")


def residual_unit(
    data: Expr,
    num_filter: int,
    stride: int,
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    layout: str = "NCHW",
) -> Expr:
    """A unit: the sum of its operand, or of a projection of it, and of two or three convolutions.

    Args:
        num_filter: channels of the result.
        stride: of the first convolution and of the projection.
        dim_match: whether the operand has the shape of the result.
    """
    narrow, sizes = num_filter // 4, [(num_filter, 3)] * 2
    if bottle_neck:
        sizes = [(narrow, 1), (narrow, 3), (num_filter, 1)]
    body, rectified = data, []
    for index, (channels, size) in enumerate(sizes, 1):
        rectified.append(nn.relu(_normalized(body, f"{name}_bn{index}", layout)))
        step = stride if index == 1 else 1
        body = _convolution(rectified[-1], f"{name}_conv{index}", channels, size, step, layout)
    if dim_match:
        return body + data
    return body + _convolution(rectified[0], f"{name}_sc", num_filter, 1, stride, layout)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Sequence[int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> tuple[Module, dict[str, Tensor]]:
    """The network with values: see `get_net` and `create_workload`."""
    net = get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype)
    return create_workload(net)


def _stem(data: Expr, channels: int, rows: int, layout: str) -> Expr:
    if rows <= _SMALL_ROWS:
        return _convolution(data, "conv0", channels, 3, 1, layout)
    body = _convolution(data, "conv0", channels, 7, 2, layout)
    body = nn.relu(_normalized(body, "bn0", layout))
    pooled: Expr = nn.max_pool2d(
        body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout
    )
    return pooled


def _convolution(data: Expr, name: str, channels: int, size: int, stride: int, layout: str) -> Expr:
    return conv2d(
        data,
        name=name,
        channels=channels,
        kernel_size=(size, size),
        strides=(stride, stride),
        padding=(size // 2, size // 2),
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout),
    )


def _normalized(data: Expr, name: str, layout: str, scale: bool = True) -> Expr:
    axis = layout.index("C")
    return batch_norm_infer(data, name=name, axis=axis, epsilon=_EPSILON, scale=scale)
