import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_quant.bench.contractions import contractions
from tvm_quant.ir import constant

N = tvm.tirx.Var("n", "int64")


def only_contraction(data, weight, operator, **attrs):
    """The contraction of a module that is one call, with 2 for a symbolic dimension."""
    x = relax.Var("x", relax.TensorType(data, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(operator(x, constant(np.ones(weight, "float32")), **attrs))
        builder.emit_func_output(y)
    sizes = [dim if isinstance(dim, int) else 2 for dim in data]
    (found,) = contractions(builder.get(), {"x": np.ones(sizes, "float32")})
    return found


@pytest.mark.parametrize(
    ("arguments", "attrs", "what", "output", "products"),
    [
        (
            ((1, 4, 9, 9), (8, 4, 3, 1), relax.op.nn.conv2d),
            {"strides": 2},
            "conv 3x1/2 4 -> 8",
            (1, 8, 4, 5),
            8 * 20 * 12,
        ),
        (
            ((N, 4, 9), (8, 2, 3), relax.op.nn.conv1d),
            {"groups": 2, "padding": 1},
            "conv 3 4 -> 8, 2 groups",
            (2, 8, 9),
            2 * 8 * 9 * 6,
        ),
        (
            ((1, 4, 5, 5), (4, 3, 2, 2), relax.op.nn.conv2d_transpose),
            {"strides": 2},
            "transposed conv 2x2/2 4 -> 3",
            (1, 3, 10, 10),
            4 * 25 * 3 * 4,
        ),
        (((N, 7, 5), (5, 6), relax.op.matmul), {}, "matmul 5 -> 6", (2, 7, 6), 2 * 7 * 6 * 5),
    ],
)
def test_a_contraction_is_described_and_counted(arguments, attrs, what, output, products):
    found = only_contraction(*arguments, **attrs)
    assert (found.what, found.output, found.operations) == (what, output, 2 * products)


def test_the_data_of_a_padded_layer_is_known_with_and_without_the_pad():
    def padded(x, weight):
        return relax.op.nn.conv2d(relax.op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]), weight)

    found = only_contraction((1, 4, 5, 6), (8, 4, 3, 3), padded)
    assert found.data == ((1, 7, 8, 4), (1, 5, 6, 4))
