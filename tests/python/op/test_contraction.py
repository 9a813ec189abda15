import pytest
from tvm import relax

from tvm_quant.op import ContractionAxes, contraction_axes


def tensor(*shape):
    return relax.Var("t", relax.TensorType(shape, "float32"))


CASES = {
    "conv1d": (
        lambda: relax.op.nn.conv1d(tensor(1, 4, 9), tensor(8, 4, 3)),
        ContractionAxes(data=1, output=1, weight_output=0, weight_input=1),
    ),
    "conv2d channels last": (
        lambda: relax.op.nn.conv2d(
            tensor(1, 9, 9, 4), tensor(3, 3, 4, 8), data_layout="NHWC", kernel_layout="HWIO"
        ),
        ContractionAxes(data=3, output=3, weight_output=3, weight_input=2),
    ),
    "conv2d with a layout of its result": (
        lambda: relax.op.nn.conv2d(tensor(1, 4, 9, 9), tensor(8, 4, 3, 3), out_layout="NHWC"),
        ContractionAxes(data=1, output=3, weight_output=0, weight_input=1),
    ),
    "grouped conv2d": (
        lambda: relax.op.nn.conv2d(tensor(1, 4, 9, 9), tensor(8, 2, 3, 3), groups=2),
        ContractionAxes(data=1, output=1, weight_output=0, weight_input=1, groups=2),
    ),
    "grouped conv2d_transpose": (
        lambda: relax.op.nn.conv2d_transpose(tensor(1, 4, 9, 9), tensor(4, 3, 3, 3), groups=2),
        ContractionAxes(
            data=1, output=1, weight_output=1, weight_input=0, groups=2, transposed=True
        ),
    ),
    "matmul": (
        lambda: relax.op.matmul(tensor(2, 5, 4), tensor(4, 8)),
        ContractionAxes(data=2, output=2, weight_output=1, weight_input=0),
    ),
    "matmul of batches": (
        lambda: relax.op.matmul(tensor(5, 4), tensor(2, 4, 8)),
        ContractionAxes(data=1, output=2, weight_output=2, weight_input=1),
    ),
}


@pytest.mark.parametrize(("make", "axes"), CASES.values(), ids=CASES)
def test_channel_axes(make, axes):
    assert contraction_axes(relax.BlockBuilder().normalize(make())) == axes


def test_only_grouped_transposed_weights_come_in_blocks():
    plain, transposed = (
        contraction_axes(relax.BlockBuilder().normalize(CASES[name][0]()))
        for name in ("grouped conv2d", "grouped conv2d_transpose")
    )
    assert (plain.weight_blocks, transposed.weight_blocks) == (1, 2)
