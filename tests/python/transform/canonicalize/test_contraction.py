import numpy as np
import pytest
import tvm
from tvm import relax

from prepared import const, nn
from tvm_quant.transform.canonicalize.contraction import (
    Weights,
    bias_shape,
    is_contraction,
    per_channel,
)


def conv(shape=(6, 2, 3, 3), **attributes):
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    call = nn.conv2d(x, relax.const(const(*shape)), groups=2, **attributes)
    return relax.BlockBuilder().normalize(call)


def test_channels_of_a_grouped_convolution_count_all_groups():
    weights = Weights(conv())
    assert (weights.inputs, weights.outputs) == (4, 6)


def test_scaling_the_outputs_of_a_grouped_convolution_scales_its_rows():
    factor = const(6, seed=2)
    np.testing.assert_array_equal(
        Weights(conv()).scaled(outputs=factor), const(6, 2, 3, 3) * factor.reshape(-1, 1, 1, 1)
    )


def test_scaling_the_inputs_of_a_grouped_convolution_scales_each_group_by_its_own_inputs():
    factor = const(4, seed=2)
    expected = const(6, 2, 3, 3)
    expected[:3] *= factor[:2].reshape(1, 2, 1, 1)
    expected[3:] *= factor[2:].reshape(1, 2, 1, 1)
    np.testing.assert_array_equal(Weights(conv()).scaled(inputs=factor), expected)


def test_a_constant_per_input_channel_adds_what_the_convolution_makes_of_it():
    shift = const(4, seed=3)
    taps = const(6, 2, 3, 3).sum(axis=(2, 3))
    expected = np.concatenate([taps[:3] @ shift[:2], taps[3:] @ shift[2:]])
    np.testing.assert_allclose(Weights(conv()).response(shift), expected)


@pytest.mark.parametrize(
    ("data", "kernel", "shape", "bias"),
    [("NCHW", "OIHW", (6, 4, 1, 1), (1, -1, 1, 1)), ("NHWC", "HWIO", (1, 1, 4, 6), (1, 1, 1, -1))],
)
def test_layouts_are_seen_through(data, kernel, shape, bias):
    x = relax.Var("x", relax.TensorType((1, 4, 4, 4), "float32"))
    call = nn.conv2d(x, relax.const(const(*shape)), data_layout=data, kernel_layout=kernel)
    call = relax.BlockBuilder().normalize(call)
    factor = const(6, seed=2)
    broadcast = factor.reshape([-1 if axis == "O" else 1 for axis in kernel])
    np.testing.assert_array_equal(Weights(call).scaled(outputs=factor), const(*shape) * broadcast)
    assert bias_shape(call) == bias


def test_a_convolution_with_a_computed_kernel_is_no_contraction_with_weights():
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    w = relax.Var("w", relax.TensorType((6, 4, 3, 3), "float32"))
    assert not is_contraction(relax.BlockBuilder().normalize(nn.conv2d(x, w)))


def test_packed_layouts_are_left_alone():
    call = conv()
    assert is_contraction(call)
    x = relax.Var("x", relax.TensorType((1, 1, 8, 8, 4), "float32"))
    packed = nn.conv2d(
        x, relax.const(const(1, 1, 3, 3, 4, 4)), data_layout="NCHW4c", kernel_layout="OIHW4i4o"
    )
    assert not is_contraction(relax.BlockBuilder().normalize(packed))


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 1, 3, 4), (1, 2, 1, 1)])
def test_what_varies_elsewhere_is_not_per_channel(shape):
    assert per_channel(np.ones(shape), rank=4, axis=1, channels=3) is None


def test_a_number_is_the_same_for_every_channel():
    assert per_channel(np.float32(2), rank=4, axis=1, channels=3).tolist() == [2, 2, 2]


def test_attributes_survive_new_weights():
    call = conv(strides=2, padding=1)
    new = Weights(call).with_value(const(6, 2, 3, 3, seed=9))
    tvm.ir.assert_structural_equal(new.attrs, call.attrs)
