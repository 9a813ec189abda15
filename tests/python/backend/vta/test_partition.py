"""What VTA takes of a network, and that it makes no difference to any result."""

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import vta_networks as nets
import vta_oracle
from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.codegen import compile_region, simulate
from tvm_quant.backend.vta.codegen.policy import POLICIES
from tvm_quant.backend.vta.partition import NothingOnVtaWarning, Part, partition
from tvm_quant.ir import constant
from vta_oracle import partitioned

R = relax.op
RUN = "relax.call_dps_packed"


# Forms of one layer ----------


def plain(emit, x):
    acc = nets.convolution(emit, x, nets.weights(20, 7, 3, 3), range(20), padding=1)
    return emit(nets.scaled(acc, np.arange(20) % 5 + 6, low=0))


def without_bias(emit, x):
    acc = emit(R.nn.conv2d(x, constant(nets.weights(5, 7, 1, 1)), out_dtype="int32"))
    return emit(nets.scaled(acc, 9))


def with_residual(emit, x):
    acc = nets.convolution(emit, x, nets.weights(7, 7, 3, 3), range(7), padding=1)
    return emit(nets.scaled(nets.residual(emit, acc, x, [3, 7, 9, 0, 12, 5, 6]), 10))


def residual_that_is_finer(emit, x):
    acc = nets.convolution(emit, x, nets.weights(7, 7, 1, 1, reach=15), range(7))
    acc = emit(R.left_shift(acc, nets.by_channel([3] * 7, acc)))
    return emit(nets.scaled(nets.residual(emit, acc, x, [0] * 7), 8))


def depthwise(emit, x):
    acc = nets.convolution(emit, x, nets.weights(7, 1, 3, 3), range(7), groups=7, strides=2)
    return emit(nets.scaled(acc, 7))


def grouped(emit, x):
    x = emit(nets.scaled(nets.convolution(emit, x, nets.weights(24, 7, 1, 1), [0] * 24), 7))
    acc = nets.convolution(emit, x, nets.weights(36, 8, 3, 3), range(36), groups=3)
    return emit(nets.scaled(acc, 9))


def dilated(emit, x):
    acc = nets.convolution(emit, x, nets.weights(4, 7, 3, 3), range(4), dilation=2, padding=2)
    return emit(nets.scaled(acc, 9))


def uneven_padding(emit, x):
    acc = nets.convolution(
        emit, x, nets.weights(4, 7, 3, 3), range(4), strides=2, padding=(0, 0, 1, 1)
    )
    return emit(nets.scaled(acc, 9))


def left_shift(emit, x):
    acc = nets.convolution(emit, x, nets.weights(4, 7, 1, 1, reach=1), range(4))
    return emit(nets.scaled(acc, [-3, 0, 1, -1]))


def silent_channels(emit, x):
    weight = nets.weights(4, 7, 1, 1)
    weight[1] = 0
    weight[3, 0] = 1
    return emit(nets.scaled(nets.convolution(emit, x, weight, [5, -9, 7, 0]), [9, 35, 27, 31]))


def bounds_by_channel(emit, x):
    acc = nets.convolution(emit, x, nets.weights(4, 7, 1, 1), range(4))
    q = emit(nets.scaled(acc, [8, 8, 9, 9], low=0, high=100))
    return emit(R.minimum(q, constant(np.int8([127, 96, 0, 1]).reshape(1, 4, 1, 1))))


def sum_of_two(emit, x):
    y = emit(nets.scaled(nets.convolution(emit, x, nets.weights(7, 7, 1, 1), [1] * 7), 8))
    left, right = (emit(R.astype(value, "int32")) for value in (x, y))
    right = emit(R.left_shift(right, constant(np.int32(3))))
    return emit(nets.scaled(emit(R.add(left, right)), 2))


def mean_of_a_plane(emit, x):
    x = plain(emit, x)
    wide = emit(R.astype(x, "int32"))
    return emit(nets.scaled(emit(R.sum(wide, axis=[2, 3], keepdims=True)), 5))


def pool(emit, x):
    return emit(R.nn.max_pool2d(plain(emit, x), (3, 3), (2, 2), padding=1))


def pool_to_the_last_pixel(emit, x):
    return emit(R.nn.max_pool2d(plain(emit, x), (3, 2), (2, 2), ceil_mode=True))


def every_second_pixel(emit, x):
    x = plain(emit, x)
    return emit(R.strided_slice(x, [2, 3], [0, 0], [100, 100], [2, 2]))


def channels_of_zeros(emit, x):
    return emit(R.nn.pad(plain(emit, x), (0, 0, 3, 5, 0, 0, 0, 0)))


def border_of_zeros(emit, x):
    return emit(R.nn.pad(plain(emit, x), (0, 0, 0, 0, 2, 1, 0, 3)))


def dense_behind_flatten(emit, x):
    flat = emit(R.reshape(plain(emit, x), (1, -1)))
    acc = emit(R.matmul(flat, constant(nets.weights(20 * 63, 10)), out_dtype="int32"))
    return emit(nets.scaled(emit(R.add(acc, nets.by_channel(range(10), acc))), 12))


FORMS = {
    function.__name__: function
    for function in (
        plain,
        without_bias,
        with_residual,
        residual_that_is_finer,
        depthwise,
        grouped,
        dilated,
        uneven_padding,
        left_shift,
        silent_channels,
        bounds_by_channel,
        sum_of_two,
        mean_of_a_plane,
        pool,
        pool_to_the_last_pixel,
        every_second_pixel,
        channels_of_zeros,
        border_of_zeros,
        dense_behind_flatten,
    )
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_vta_takes_the_form_whole_and_computes_the_same(form):
    mod = nets.build(form, x=(1, 7, 9, 7))
    after = partitioned(mod)
    assert nets.operators(after) == [RUN]
    nets.assert_equal_everywhere(mod, after)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_it_makes_no_difference_which_stage_goes_first(form):
    """A program whose stages do not wait for each other gives other results in another order."""
    mod = nets.build(form, x=(1, 7, 9, 7))
    (part,) = [piece for piece in partition(mod["main"]) if isinstance(piece, Part)]
    program = compile_region(part.region, VtaConfig())
    codes = nets.codes(1, 7, 9, 7)
    expected = vta_oracle.run(part.region, [codes])
    for policy in POLICIES.values():
        (found,) = simulate(program, [codes], policy=policy).outputs
        np.testing.assert_array_equal(found, expected[0])


def test_rows_of_features_are_multiplied():
    def body(emit, x):
        acc = emit(R.matmul(x, constant(nets.weights(19, 33)), out_dtype="int32"))
        hidden = emit(nets.scaled(emit(R.add(acc, nets.by_channel(range(33), acc))), 7, low=0))
        acc = emit(R.matmul(hidden, constant(nets.weights(33, 4)), out_dtype="int32"))
        return emit(nets.scaled(acc, 9))

    mod = nets.build(body, x=(5, 19))
    after = partitioned(mod)
    assert nets.operators(after) == [RUN]
    nets.assert_equal_everywhere(mod, after)


# What stays on the CPU ----------


def overflowing(emit, x):
    acc = nets.convolution(emit, x, nets.weights(4, 7, 1, 1), [2**31 - 1000] * 4)
    return emit(nets.scaled(acc, 20))


def bias_by_pixel(emit, x):
    acc = emit(R.nn.conv2d(x, constant(nets.weights(4, 7, 1, 1)), out_dtype="int32"))
    pixels = np.arange(63, dtype="int32").reshape(1, 1, 9, 7)
    return emit(nets.scaled(emit(R.add(acc, constant(pixels))), 8))


def shift_out_of_reach(emit, x):
    acc = nets.convolution(emit, x, nets.weights(4, 7, 1, 1, reach=1), range(4))
    return emit(nets.scaled(acc, -5))


def pool_alone(emit, x):
    return emit(R.nn.max_pool2d(x, (2, 2), (2, 2)))


def weights_at_run_time(emit, x):
    acc = emit(R.nn.conv2d(x, x, out_dtype="int32"))
    return emit(nets.scaled(acc, 8))


@pytest.mark.parametrize(
    "form",
    [overflowing, bias_by_pixel, shift_out_of_reach, pool_alone, weights_at_run_time],
    ids=lambda form: form.__name__,
)
def test_what_has_no_form_stays_as_it_is(form):
    mod = nets.build(form, x=(1, 7, 9, 7))
    with pytest.warns(NothingOnVtaWarning, match="no convolution of int8"):
        after = partitioned(mod)
    tvm.ir.assert_structural_equal(after, mod)


# Regions ----------


def block(emit, x, seed):
    acc = nets.convolution(emit, x, nets.weights(8, 8, 3, 3, seed=seed), range(8), padding=1)
    return emit(nets.scaled(acc, 9, low=0))


def test_a_chain_with_branches_is_one_region():
    def body(emit, x):
        first, second = block(emit, x, 1), block(emit, x, 2)
        acc = nets.convolution(emit, first, nets.weights(8, 8, 3, 3), range(8), padding=1)
        return emit(nets.scaled(nets.residual(emit, acc, second, [4] * 8), 9)), first

    mod = nets.build(body, x=(1, 8, 6, 6))
    after = partitioned(mod)
    assert nets.operators(after) == [RUN]
    nets.assert_equal_everywhere(mod, after)


def test_regions_do_not_wait_for_each_other():
    """What the CPU computes of a region must not be read by the same region."""

    def body(emit, x):
        first = block(emit, x, 1)
        aside = emit(R.subtract(first, constant(np.int8(1))))  # has no form
        second = block(emit, first, 2)
        third = block(emit, aside, 3)
        acc = nets.convolution(emit, second, nets.weights(8, 8, 3, 3), range(8), padding=1)
        return emit(nets.scaled(nets.residual(emit, acc, third, [4] * 8), 9))

    mod = nets.build(body, x=(1, 8, 6, 6))
    after = partitioned(mod)
    assert nets.operators(after) == [RUN, "relax.subtract", RUN]
    nets.assert_equal_everywhere(mod, after)


def test_a_concat_between_regions_stays_on_the_cpu():
    def body(emit, x):
        joined = emit(R.concat([block(emit, x, 1), block(emit, x, 2)], axis=1))
        acc = nets.convolution(emit, joined, nets.weights(5, 16, 1, 1), range(5))
        return emit(nets.scaled(acc, 9))

    mod = nets.build(body, x=(1, 8, 6, 6))
    after = partitioned(mod)
    assert nets.operators(after) == [RUN, "relax.concat", RUN]
    nets.assert_equal_everywhere(mod, after)


def test_multiplications_are_counted_as_the_network_has_them():
    mod = nets.build(grouped, x=(1, 7, 9, 7))
    (part,) = [piece for piece in partition(mod["main"]) if hasattr(piece, "macs")]
    assert part.macs == 9 * 7 * 24 * 7 + 7 * 5 * 36 * 8 * 9


# Properties ----------


def test_rows_that_a_stride_leaves_out_are_left_out_beside_padded_columns():
    def body(emit, x):
        weight = nets.weights(3, 2, 1, 5)
        acc = nets.convolution(emit, x, weight, range(3), strides=(2, 2), padding=(0, 2, 0, 0))
        return emit(nets.scaled(acc, 6))

    mod = nets.build(body, x=(1, 2, 5, 10))
    after = partitioned(mod)
    assert nets.operators(after) == [RUN]
    nets.assert_equal_everywhere(mod, after)


def padding_alone(emit, x):
    """A convolution of a plane of one pixel that reads the row above it."""
    weight = nets.weights(4, int(x.ty.shape[1]), 1, 1)
    return nets.convolution(emit, x, weight, range(4), strides=(2, 1), padding=(1, 0, 0, 0))


def test_padding_alone_adds_nothing_to_a_residual():
    """The residual is loaded before, into the memory that the padding would be in."""

    def body(emit, x, y):
        acc = nets.residual(emit, padding_alone(emit, x), y, [0, 8, 0, 8])
        return emit(nets.scaled(acc, 8))

    mod = nets.build(body, x=(1, 1, 1, 1), y=(1, 4, 1, 1))
    after = partitioned(mod)
    assert nets.operators(after) == [RUN]
    nets.assert_equal_everywhere(mod, after)


def pooled(emit, x):
    return emit(R.nn.max_pool2d(x, (1, 1), (2, 1), padding=(1, 0, 0, 0)))


def convolved(emit, x):
    return emit(nets.scaled(padding_alone(emit, x), 1))


@pytest.mark.parametrize("of_padding", [convolved, pooled], ids=lambda form: form.__name__)
def test_a_layer_that_loads_nothing_stands_between_others(of_padding):
    def body(emit, x):
        before = emit(nets.scaled(nets.convolution(emit, x, nets.weights(4, 3, 1, 1), range(4)), 8))
        between = of_padding(emit, before)
        acc = nets.convolution(emit, between, nets.weights(4, 4, 1, 1), range(4))
        return emit(nets.scaled(nets.residual(emit, acc, before, [4] * 4), 8))

    mod = nets.build(body, x=(1, 3, 1, 1))
    after = partitioned(mod)
    assert nets.operators(after) == [RUN]
    nets.assert_equal_everywhere(mod, after)


@st.composite
def layers(draw):
    """(body, shape of the input) of a random convolution."""
    channels, outputs = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    size = draw(st.integers(1, 11)), draw(st.integers(1, 11))
    padding = draw(st.tuples(*[st.integers(0, 3)] * 4))
    kernel = [
        draw(st.integers(1, min(7, size[axis] + padding[axis] + padding[axis + 2])))
        for axis in (0, 1)
    ]
    strides = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    reach = draw(st.sampled_from([1, 20, 127]))
    weight = rng.integers(-reach, reach + 1, (outputs, channels, *kernel)).astype("int8")
    bias = rng.integers(-(2**20), 2**20, outputs)
    shift = rng.integers(draw(st.integers(-4, 8)), draw(st.integers(9, 32)), outputs)
    low = draw(st.sampled_from([-128, -127, 0]))
    added = draw(st.booleans())
    left = rng.integers(0, 16, outputs)

    def body(emit, x, *ys):
        acc = nets.convolution(emit, x, weight, bias, strides=strides, padding=padding)
        for y in ys:
            acc = nets.residual(emit, acc, y, left)
        return emit(nets.scaled(acc, shift, low=low))

    shapes = {"x": (1, channels, *size)}
    if added:
        extents = [
            (size[axis] + padding[axis] + padding[axis + 2] - kernel[axis]) // strides[axis] + 1
            for axis in (0, 1)
        ]
        shapes["y"] = (1, outputs, *extents)
    return body, shapes


@settings(max_examples=25, deadline=None)
@given(layer=layers())
def test_any_convolution_gives_the_same_on_vta(layer):
    body, shapes = layer
    mod = nets.build(body, **shapes)
    after = partitioned(mod)
    assert nets.operators(after) == [RUN]
    nets.assert_equal_everywhere(mod, after)
