import numpy as np
import pytest
from tvm import relax

from prepared import assert_leaves, assert_prepares, const, nn

c = relax.const
X = {"x": (2, 4, 6, 6)}
W = const(6, 4, 3, 3)
PADS = [0, 0, 0, 0, 1, 2, 0, 3]


def test_zero_padding_goes_into_the_convolution():
    assert_prepares(
        lambda bb, x: nn.conv2d(bb.emit(nn.pad(x, PADS)), c(W), strides=2, padding=1),
        lambda bb, x: nn.conv2d(x, c(W), strides=2, padding=[2, 1, 3, 4]),
        **X,
    )


def test_zero_padding_goes_into_channels_last_and_one_dimensional_convolutions():
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    kernel = c(const(3, 3, 4, 6))
    assert_prepares(
        lambda bb, x: nn.conv2d(bb.emit(nn.pad(x, [0, 0, 1, 2, 0, 3, 0, 0])), kernel, **layout),
        lambda bb, x: nn.conv2d(x, kernel, padding=[1, 0, 2, 3], **layout),
        x=(2, 6, 6, 4),
    )
    assert_prepares(
        lambda bb, x: nn.conv1d(bb.emit(nn.pad(x, [0, 0, 0, 0, 1, 2])), c(const(6, 4, 3))),
        lambda bb, x: nn.conv1d(x, c(const(6, 4, 3)), padding=[1, 2]),
        x=(2, 4, 6),
    )


def test_zero_padding_goes_into_an_average_that_counts_it():
    assert_prepares(
        lambda bb, x: nn.avg_pool2d(bb.emit(nn.pad(x, PADS)), (3, 3)),
        lambda bb, x: nn.avg_pool2d(x, (3, 3), padding=[1, 0, 2, 3], count_include_pad=True),
        **X,
    )


@pytest.mark.parametrize(
    "body",
    [
        lambda bb, x: nn.conv2d(bb.emit(nn.pad(x, PADS, pad_value=1.0)), c(W)),
        lambda bb, x: nn.conv2d(bb.emit(nn.pad(x, PADS, pad_mode="reflect")), c(W)),
        lambda bb, x: nn.conv2d(bb.emit(nn.pad(x, [0, 0, 1, 0, 0, 0, 0, 0])), c(const(6, 5, 3, 3))),
        lambda bb, x: nn.avg_pool2d(bb.emit(nn.pad(x, PADS)), (3, 3), padding=1),
        lambda bb, x: nn.max_pool2d(bb.emit(nn.pad(x, PADS)), (3, 3)),
    ],
)
def test_other_padding_stays(body):
    assert_leaves(body, **X)


def test_padding_that_someone_else_reads_stays():
    def body(bb, x):
        padded = bb.emit(nn.pad(x, PADS))
        return nn.conv2d(padded, c(W)), relax.op.tanh(padded)

    assert_leaves(body, **X)


def test_padding_in_front_of_a_transposed_convolution_stays():
    weight = c(np.ones((4, 3, 3, 3), "float32"))
    assert_leaves(lambda bb, x: nn.conv2d_transpose(bb.emit(nn.pad(x, PADS)), weight), **X)
