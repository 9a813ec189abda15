import numpy as np
import pytest
from tvm import relax

from realized import normal
from tvm_quant.op import ContractionAxes
from tvm_quant.transform.channel_vector import (
    along,
    by_input_group,
    to_output_vector,
    to_weight_shape,
    weight_by_output,
)

PLAIN = ContractionAxes(data=1, output=1, weight_output=0, weight_input=1)
GROUPED = ContractionAxes(data=1, output=1, weight_output=0, weight_input=1, groups=2)
TRANSPOSED = ContractionAxes(
    data=1, output=1, weight_output=1, weight_input=0, groups=2, transposed=True
)


def test_along_puts_a_vector_on_an_axis():
    assert along(np.arange(3), 1, 4).shape == (1, 3, 1, 1)


def test_a_vector_takes_the_shape_of_a_scale():
    vector = np.array([1.0, 5, 2, 4])
    assert to_weight_shape(vector, np.ones(()), PLAIN) == 5  # one scale: the largest element
    assert to_weight_shape(vector, np.ones((4, 1, 1, 1)), PLAIN)[:, 0, 0, 0].tolist() == [
        1,
        5,
        2,
        4,
    ]
    rows = to_weight_shape(vector, np.ones((6, 2, 1, 1)), TRANSPOSED)[:, :, 0, 0]
    assert rows.tolist() == [[1, 5]] * 3 + [[2, 4]] * 3


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (3.0, [3, 3, 3]),
        (np.array([1.0, 2, 3]).reshape(3, 1, 1), [1, 2, 3]),
        (np.arange(12.0).reshape(1, 3, 2, 2), [3, 7, 11]),
        (np.arange(4.0).reshape(2, 2), [3, 3, 3]),
        (np.array([[7.0], [9]]).reshape(2, 1, 1, 1), [9, 9, 9]),
    ],
)
def test_values_are_reduced_to_the_largest_of_each_channel(values, expected):
    result = relax.Var("y", relax.TensorType((2, 3, 2, 2), "float32"))
    assert to_output_vector(values, 1, result, 3).tolist() == expected


def test_weights_are_seen_by_output_channel():
    weight = normal(4, 3, 2, 5)
    np.testing.assert_array_equal(weight_by_output(weight, PLAIN), weight.reshape(4, 3, 10))
    last = ContractionAxes(data=3, output=3, weight_output=3, weight_input=2)
    by_output = weight_by_output(weight, last)
    np.testing.assert_array_equal(by_output, weight.transpose(3, 2, 0, 1).reshape(5, 2, 12))


def test_transposed_weights_are_seen_group_by_group():
    weight = normal(4, 3, 1, 2)  # two groups of two inputs and three outputs
    by_output = weight_by_output(weight, TRANSPOSED)
    assert by_output.shape == (6, 2, 2)
    for group in range(2):
        for output in range(3):
            expected = weight[2 * group : 2 * group + 2, output, 0]
            np.testing.assert_array_equal(by_output[3 * group + output], expected)


def test_each_output_sees_the_inputs_of_its_group():
    seen = by_input_group(np.arange(4), GROUPED, 6)
    assert seen.tolist() == [[0, 1]] * 3 + [[2, 3]] * 3
    assert by_input_group(np.arange(2), PLAIN, 3).tolist() == [[0, 1]] * 3
