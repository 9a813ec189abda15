import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from calibrated import calibrated, quantizer_values
from plain_tvm import build
from realized import normal
from tvm_quant.backend.cpu.isa import ISAS
from tvm_quant.backend.cpu.lower import LowerContractions
from tvm_quant.backend.cpu.pipeline import ChannelsLast
from tvm_quant.config import QuantizeConfig
from tvm_quant.ir import bindings, constant_value, op_name
from tvm_quant.op import contraction_axes, scale_of
from tvm_quant.transform import FitAccumulators, Realize
from tvm_quant.transform.weight_pairs import largest_pairs, limit_pairs

R, NN = relax.op, relax.op.nn
AVX2 = next(isa for isa in ISAS if isa.name == "avx2")
FOR_AVX2 = QuantizeConfig(hardware="x86_avx2")


def axes_of(call):
    return contraction_axes(relax.BlockBuilder().normalize(call))


def tensor(*shape):
    return relax.Var("t", relax.TensorType(shape, "float32"))


def test_a_pair_is_two_neighbouring_input_channels():
    weight = np.float32([[1, 2, -3, -9, 4, -5, 0, 7], [6, -8, 0, 0, 0, 0, -1, -2]])
    axes = axes_of(NN.conv2d(tensor(1, 8, 3, 3), tensor(2, 8, 1, 1)))
    assert largest_pairs(weight.reshape(2, 8, 1, 1), axes).tolist() == [12, 8]


def test_a_pair_of_a_matrix_is_two_neighbouring_rows():
    weight = np.float32([[1, 4], [2, -4], [9, 1], [-9, 1]])
    axes = axes_of(R.matmul(tensor(1, 4), tensor(4, 2)))
    assert largest_pairs(weight, axes).tolist() == [9, 4]


def test_depthwise_and_transposed_convolutions_have_no_pairs():
    depthwise = axes_of(NN.conv2d(tensor(1, 2, 5, 5), tensor(2, 1, 3, 2), groups=2))
    assert largest_pairs(np.ones((2, 1, 3, 2), "float32"), depthwise).tolist() == [0, 0]
    spread = axes_of(NN.conv2d_transpose(tensor(1, 4, 5, 5), tensor(4, 2, 1, 1)))
    assert largest_pairs(np.ones((4, 2, 1, 1), "float32"), spread).tolist() == [0, 0]


def test_few_channels_make_pairs_with_the_pixels_beside_them():
    """A row of pixels, 1 2 4 and 8 16 -32: 4 and 8 are a pair, or with other strides 8 and 16."""
    weight = np.float32([1, 2, 4, 8, 16, -32]).reshape(1, 2, 3).transpose(0, 2, 1)
    axes = axes_of(NN.conv1d(tensor(1, 3, 5), tensor(1, 3, 2)))
    assert largest_pairs(weight, axes).tolist() == [32]
    assert largest_pairs(np.abs(weight), axes).tolist() == [48]


def test_scales_are_raised_until_no_pair_is_larger():
    weight = normal(4, 8, 1, 1)
    weight[0] = np.reshape([1, 0.5, 0.25, -1, -0.5, 0, 0, 0], (8, 1, 1))  # a pair of 1.5
    weight[1] = np.reshape([1, -0.5, 0.25, 0, -0.5, 0, 0, 0], (8, 1, 1))  # of 1

    def body(b, x):
        return b.emit(NN.conv2d(x, relax.const(weight)), "conv")

    x = normal(2, 8, 4, 4)
    mod, _ = calibrated(build(body, x=x.shape), x, config=FOR_AVX2)
    before, after = (
        scale_of(quantizer_values(m)["conv_weight_q"])[0].reshape(-1)
        for m in (mod, FitAccumulators(FOR_AVX2)(mod))
    )
    np.testing.assert_array_equal(before[:2], np.float32([1 / 127, 1 / 127]))
    np.testing.assert_allclose(after[:2], [1.5 / 127, 1 / 127], rtol=1e-6)
    default = FitAccumulators()(mod)
    np.testing.assert_array_equal(
        scale_of(quantizer_values(default)["conv_weight_q"])[0].reshape(-1), before
    )


def test_the_larger_code_of_a_pair_gives_way():
    axes = axes_of(NN.conv2d(tensor(1, 8, 3, 3), tensor(1, 8, 1, 1)))
    codes = np.float64([100, 30, -50, 100, -60, -90, 64, 64])
    limited = limit_pairs(codes.reshape(1, 8, 1, 1), axes, 128)
    assert limited.reshape(-1).tolist() == [98, 30, -50, 100, -60, -68, 64, 64]


@given(st.sampled_from([1, 3, 4, 5, 8]), st.sampled_from([(1, 1), (3, 3), (2, 4)]))
def test_limited_codes_have_no_larger_pair(inputs, kernel):
    codes = np.random.default_rng(0).integers(-127, 128, (8, inputs, *kernel))
    axes = axes_of(NN.conv2d(tensor(1, inputs, 5, 5), tensor(*codes.shape)))
    limited = limit_pairs(codes, axes, 128)
    assert largest_pairs(limited, axes).max() <= 128
    np.testing.assert_array_equal(limit_pairs(limited, axes, 128), limited)
    assert (np.abs(limited) <= np.abs(codes)).all()


@st.composite
def contractions(draw):
    """(function of a builder and x, shape of x)."""
    kind = draw(st.sampled_from(["conv", "grouped", "matmul"]))
    inputs = draw(st.sampled_from([1, 3, 4, 6, 8, 16]))
    outputs = draw(st.sampled_from([8, 16]))
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (4, 2), (5, 1), (1, 3)]))
    seed = draw(st.integers(0, 9))
    if kind == "matmul":
        weight, shape = normal(inputs, outputs, seed=seed), (3, inputs)
        return (lambda x: R.matmul(x, relax.const(weight))), shape
    groups = 1
    if kind == "grouped":
        # Groups that fill no quads are multiplied in pairs.
        inputs, groups, outputs = draw(st.sampled_from([8, 16])), 2, 16
    depth = inputs // groups
    weight = normal(outputs, depth, *kernel, seed=seed)
    dilation = draw(st.sampled_from([1, 1, 2]))
    return (lambda x: NN.conv2d(x, relax.const(weight), groups=groups, dilation=dilation)), (
        1,
        inputs,
        12,
        12,
    )


@settings(max_examples=40, derandomize=True, deadline=None)
@given(contractions(), st.booleans())
def test_weights_for_avx2_are_multiplied_four_at_a_time(contraction, per_channel):
    """The kernels find no pair that is too large, whatever the layer and how it is packed."""
    function, shape = contraction
    config = QuantizeConfig(hardware="x86_avx2", per_channel=per_channel)
    x = normal(*shape)
    mod, _ = calibrated(build(lambda b, x: b.emit(function(x), "layer"), x=shape), x, config=config)
    realized = ChannelsLast()(Realize()(FitAccumulators(config)(mod)))
    wide = LowerContractions(AVX2)(realized)
    packed = [array for array in _constants(wide) if array.dtype == np.int8]
    assert packed and all(array.shape[-1] != 2 for array in packed)


def _constants(mod):
    found = []
    for binding in bindings(mod["main"]):
        if op_name(binding.value) == "relax.call_tir":
            found += [constant_value(field) for field in binding.value.args[1].fields]
    return [array for array in found if array is not None]
