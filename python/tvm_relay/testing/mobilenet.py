"""MobileNet: convolutions split into a depthwise and a pointwise one.

Source: Howard et al., arXiv:1704.04861, table 1; `alpha` is the width multiplier of section 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm.runtime import Tensor

from tvm_relay.expr import Expr, Function, var
from tvm_relay.module import Module
from tvm_relay.namespaces import nn
from tvm_relay.testing.init import create_workload
from tvm_relay.testing.layers import batch_norm_infer, classifier, conv2d, conv_kernel_layout

_STEM = 32
#: Output channels of each separable block, and its stride.
_BEFORE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))
_MIDDLE = ((512, 1),) * 5  # the shallow variant goes without
_AFTER = ((1024, 2), (1024, 1))


def mobile_net(
    num_classes: int = 1000,
    data_shape: Sequence[int] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> Function:
    """The network: images of `data_shape` to probabilities (N, num_classes).

    Args:
        alpha: factor of all widths, > 0.
        is_shallow: leave out the five blocks of 512 channels in the middle.
        layout: of the images, NCHW or NHWC.
    """
    channels = int(_STEM * alpha)
    body: Expr = var("data", shape=tuple(data_shape), dtype=dtype)
    body = conv2d(
        body,
        name="conv_block_1_conv",
        channels=channels,
        kernel_size=(3, 3),
        strides=(2, 2),
        padding=(1, 1),
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout),
    )
    body = _normalized(body, "conv_block_1_bn", layout)
    blocks = (*_BEFORE, *(() if is_shallow else _MIDDLE), *_AFTER)
    for index, (width, stride) in enumerate(blocks, 1):
        name, outputs = f"separable_conv_block_{index}", int(width * alpha)
        body = separable_block(body, name, channels, outputs, stride, layout)
        channels = outputs
    features = nn.batch_flatten(nn.global_avg_pool2d(body, layout=layout))
    return classifier(features, num_classes, "fc")


def separable_block(
    data: Expr, name: str, inputs: int, outputs: int, stride: int, layout: str = "NCHW"
) -> Expr:
    """A depthwise convolution of 3 x 3, a pointwise one, each normalized and rectified."""
    body: Expr = conv2d(
        data,
        name=name,
        channels=inputs,
        groups=inputs,
        kernel_size=(3, 3),
        strides=(stride, stride),
        padding=(1, 1),
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout, is_depthwise=True),
    )
    body = conv2d(
        _normalized(body, f"{name}_bn1", layout),
        name=f"{name}_conv2",
        channels=outputs,
        kernel_size=(1, 1),
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout),
    )
    return _normalized(body, f"{name}_bn2", layout)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[Module, dict[str, Tensor]]:
    """The network with values: see `mobile_net` and `create_workload`."""
    shape = (batch_size, *image_shape)
    return create_workload(mobile_net(num_classes, shape, dtype, layout=layout))


def _normalized(data: Expr, name: str, layout: str) -> Expr:
    rectified: Expr = nn.relu(batch_norm_infer(data, name=name, axis=layout.index("C")))
    return rectified
