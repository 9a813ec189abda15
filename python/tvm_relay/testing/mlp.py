"""A perceptron with two hidden layers, for digits.

Source: LeCun, Bottou, Bengio and Haffner, Proceedings of the IEEE 86 (1998), section III.C.2; the
widths 128 and 64 are those of the old tutorials.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm.runtime import Tensor

from tvm_relay.expr import Function, var
from tvm_relay.module import Module
from tvm_relay.namespaces import nn
from tvm_relay.testing.init import create_workload
from tvm_relay.testing.layers import classifier, dense_add_bias

_HIDDEN = (128, 64)


def get_net(
    batch_size: int,
    num_classes: int = 10,
    image_shape: Sequence[int] = (1, 28, 28),
    dtype: str = "float32",
) -> Function:
    """The network: images (N, *image_shape) to probabilities (N, num_classes)."""
    body = nn.batch_flatten(var("data", shape=(batch_size, *image_shape), dtype=dtype))
    for index, units in enumerate(_HIDDEN, 1):
        body = nn.relu(dense_add_bias(body, units=units, name=f"fc{index}"))
    return classifier(body, num_classes, f"fc{len(_HIDDEN) + 1}")


def get_workload(
    batch_size: int,
    num_classes: int = 10,
    image_shape: Sequence[int] = (1, 28, 28),
    dtype: str = "float32",
) -> tuple[Module, dict[str, Tensor]]:
    """The network with values: see `get_net` and `create_workload`."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
