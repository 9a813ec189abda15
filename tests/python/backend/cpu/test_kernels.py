"""Compiled kernels against the unscheduled build: integers bit for bit, floats to rounding."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax, tirx

import backend_networks as networks
import plain_tvm
from tvm_quant.backend import compile
from tvm_quant.ir import constant
from tvm_quant.op import requantize

R = relax.op
#: Largest magnitudes of weights: any, and such that no pair of products leaves 16 bits.
REACHES = st.sampled_from([127, 64])
PROPERTY = settings(
    max_examples=12,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def equals_the_plain_build(mod, *inputs, target="llvm"):
    results = networks.run(mod, *inputs, target=target)
    for ours, plain in zip(results, plain_tvm.run(mod, *inputs), strict=True):
        np.testing.assert_array_equal(ours, plain)


def is_close_to_the_plain_build(mod, *inputs):
    for ours, plain in zip(networks.run(mod, *inputs), plain_tvm.run(mod, *inputs), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-4)


@st.composite
def convolutions(draw):
    """(data shape, weight shape, attributes): all groupings, odd channels, every geometry."""
    groups = draw(st.sampled_from([1, 1, 2, 3, 8]))
    depth = draw(st.sampled_from([1, 2, 3, 5, 6, 16])) if groups < 8 else 1
    per_group = draw(st.sampled_from([1, 2, 4, 8, 10, 24, 32]))
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    padding = draw(st.integers(0, 2))
    least = [max(1, (k - 1) * d + 1 - 2 * padding) for k, d in zip(kernel, dilation, strict=True)]
    spatial = [low + draw(st.integers(0, 14)) for low in least]
    batch = draw(st.integers(1, 2))
    strides = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    attrs = {"groups": groups, "strides": strides, "dilation": dilation, "padding": padding}
    return (batch, groups * depth, *spatial), (groups * per_group, depth, *kernel), attrs


@networks.runs_on
@PROPERTY
@given(convolutions(), st.sampled_from(["uint8", "int8"]), st.integers(0, 100), REACHES)
def test_integer_convolutions_equal_the_plain_build(target, geometry, dtype, zero_point, reach):
    shape, weight, attrs = geometry
    attrs = {**attrs, "dtype": dtype, "zero_point": zero_point, "reach": reach}
    mod = networks.integer_conv(shape, weight, **attrs)
    equals_the_plain_build(mod, networks.codes(shape, dtype), target=target)


@networks.runs_on
@pytest.mark.parametrize("shape", [(1, 24, 7, 7), (2, 24, 5, 5), (1, 8, 13, 13)], ids=str)
@pytest.mark.parametrize("reach", [127, 64])
def test_tiles_that_reach_over_the_last_pixel_equal_the_plain_build(target, shape, reach):
    attrs = {"groups": 1, "strides": (1, 1), "dilation": (1, 1), "padding": 0}
    mod = networks.integer_conv(
        shape, (48, shape[1], 1, 1), **attrs, dtype="uint8", zero_point=3, reach=reach
    )
    equals_the_plain_build(mod, networks.codes(shape, "uint8"), target=target)


@pytest.mark.parametrize("shape", [(1, 24, 7, 7), (2, 24, 5, 5), (1, 8, 13, 13)], ids=str)
def test_float_tiles_that_reach_over_the_last_pixel_are_close_to_the_plain_build(shape):
    attrs = {"groups": 1, "strides": (1, 1), "dilation": (1, 1), "padding": 0}
    mod = networks.float_conv(shape, (48, shape[1], 1, 1), **attrs)
    is_close_to_the_plain_build(mod, networks.normal(shape))


@PROPERTY
@given(convolutions())
def test_float_convolutions_are_close_to_the_plain_build(geometry):
    shape, weight, attrs = geometry
    is_close_to_the_plain_build(networks.float_conv(shape, weight, **attrs), networks.normal(shape))


@networks.runs_on
@PROPERTY
@given(
    st.sampled_from([(1,), (7,), (2, 3), (2, 1, 5)]),
    st.sampled_from([1, 2, 3, 16, 33]),
    st.sampled_from([1, 8, 10, 40]),
    st.sampled_from(["uint8", "int8", "int16"]),
    REACHES,
)
def test_integer_matrix_products_equal_the_plain_build(target, rows, depth, columns, dtype, reach):
    rng = np.random.default_rng(0)
    weight = rng.integers(-reach, reach + 1, (depth, columns)).astype("int8")
    bias = rng.integers(-99, 99, columns).astype("int32")

    def body(builder, x):
        y = builder.emit(R.matmul(x, constant(weight), out_dtype="int32"))
        y = builder.emit(R.add(y, constant(bias)))
        return requantize(y, 0.003, 7, dtype="int8", qmin=-128, qmax=127)

    shape = (*rows, depth)
    mod = plain_tvm.build(body, x=(dtype, *shape))
    equals_the_plain_build(mod, networks.codes(shape, dtype), target=target)


@networks.runs_on
@given(
    st.sampled_from([16, 24, 48]),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 2),
    st.integers(0, 3),
    st.sampled_from(["uint8", "int8"]),
)
@PROPERTY
def test_depthwise_convolutions_equal_the_plain_build(
    target, channels, kernel, strides, dilation, padding, dtype
):
    """Rows that are no multiple of four, that the data lacks, and that are not neighbours."""
    shape = (1, channels, 13 + kernel[0], 12 + kernel[1])
    attrs = {"groups": channels, "strides": strides, "dilation": (dilation, 1), "padding": padding}
    mod = networks.integer_conv(shape, (channels, 1, *kernel), dtype=dtype, **attrs)
    equals_the_plain_build(mod, networks.codes(shape, dtype), target=target)


@networks.runs_on
@pytest.mark.parametrize("rank", [1, 3])
def test_depthwise_convolutions_of_other_ranks_equal_the_plain_build(target, rank):
    shape, weight = (2, 32) + (9,) * rank, (32, 1) + (3,) * rank
    mod = networks.integer_conv(shape, weight, padding=1, groups=32)
    equals_the_plain_build(mod, networks.codes(shape), target=target)


@networks.runs_on
@pytest.mark.parametrize("value", [255, -128])
def test_the_largest_sums_do_not_saturate(target, value):
    """-128 * 255 twice is below the range of 16 bits."""
    weight = np.full((8, 64, 1, 1), -128, "int8")
    dtype = "uint8" if value > 0 else "int8"

    def body(_builder, x):
        return R.nn.conv2d(x, constant(weight), out_dtype="int32")

    mod = plain_tvm.build(body, x=(dtype, 1, 64, 4, 4))
    (total,) = networks.run(mod, np.full((1, 64, 4, 4), value, dtype), target=target)
    np.testing.assert_array_equal(total, -128 * value * 64)


@networks.runs_on
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_pairs_that_fit_16_bits_do_not_saturate(target, sign):
    """255 * 128 = 32640."""
    weight = np.tile(np.int8([sign * 127, sign]), (8, 32)).reshape(8, 64, 1, 1)

    def body(_builder, x):
        return R.nn.conv2d(x, constant(weight), out_dtype="int32")

    mod = plain_tvm.build(body, x=("uint8", 1, 64, 4, 4))
    (total,) = networks.run(mod, np.full((1, 64, 4, 4), 255, "uint8"), target=target)
    np.testing.assert_array_equal(total, sign * 128 * 255 * 32)


@networks.runs_on
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [3, 6, 8, 32])
def test_chained_convolutions_equal_the_plain_build(target, dtype, channels):
    """Strides, tiles that do not fit, a spread input, and two readers of one tensor."""
    rng = np.random.default_rng(0)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    shapes = [(40, channels, 3, 3), (channels, 40, 1, 1)]
    kernels = [rng.integers(-127, 128, shape).astype("int8") for shape in shapes]
    spread = rng.integers(-127, 128, (channels, 20, 2, 2)).astype("int8")

    def body(builder, x):
        first, second = map(constant, kernels)
        y = builder.emit(R.nn.conv2d(x, first, padding=1, strides=2, out_dtype="int32"))
        y = builder.emit(requantize(y, 1e-3, 7, dtype=dtype, qmin=low, qmax=high))
        y = builder.emit(R.nn.conv2d(y, second, out_dtype="int32"))
        y = builder.emit(requantize(y, 1e-3, 7, dtype=dtype, qmin=low, qmax=high))
        z = R.nn.conv2d_transpose(y, constant(spread), strides=(2, 2), out_dtype="int32")
        return y, builder.emit(z)

    shape = (2, channels, 17, 13)
    mod = plain_tvm.build(body, x=(dtype, *shape))
    equals_the_plain_build(mod, networks.codes(shape, dtype), target=target)


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_wide_activations_equal_the_plain_build(dtype):
    weight = np.random.default_rng(0).integers(-128, 128, (8, 6, 3, 3)).astype("int8")

    def body(_builder, x):
        return R.nn.conv2d(x, constant(weight), padding=1, out_dtype="int32")

    shape = (1, 6, 7, 5)
    equals_the_plain_build(plain_tvm.build(body, x=(dtype, *shape)), networks.codes(shape, dtype))


def test_accumulators_of_64_bits_equal_the_plain_build():
    weight = np.random.default_rng(0).integers(-(2**15), 2**15, (9, 40, 3, 3)).astype("int16")

    def body(_builder, x):
        return R.nn.conv2d(x, constant(weight), out_dtype="int64")

    shape = (1, 40, 6, 6)
    equals_the_plain_build(
        plain_tvm.build(body, x=("uint16", *shape)), networks.codes(shape, "uint16")
    )


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions_over_one_and_three_axes_equal_the_plain_build(rank, groups):
    shape = (2, 4) + (9,) * rank
    weight = (12, 4 // groups) + (3,) * rank
    mod = networks.integer_conv(shape, weight, padding=1, groups=groups)
    equals_the_plain_build(mod, networks.codes(shape))


def test_a_residual_sum_and_a_second_reader_equal_the_plain_build():
    rng = np.random.default_rng(0)
    kernels = [rng.integers(-127, 128, (16, 16, 3, 3)).astype("int8") for _ in range(2)]

    def body(builder, x):
        values = x
        for kernel in kernels:
            total = builder.emit(
                R.nn.conv2d(values, constant(kernel), padding=1, out_dtype="int32")
            )
            values = builder.emit(requantize(total, 1e-3, 128, dtype="uint8", qmin=0, qmax=255))
        wide = builder.emit(R.add(R.astype(values, "int32"), R.astype(x, "int32")))
        return builder.emit(R.right_shift(wide, constant(np.int32(1)))), values

    shape = (1, 16, 10, 10)
    equals_the_plain_build(plain_tvm.build(body, x=("uint8", *shape)), networks.codes(shape))


@PROPERTY
@given(
    st.sampled_from([(3, 5, 1), (8, 16, 1), (8, 8, 8), (6, 12, 3), (4, 8, 4)]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.booleans(),
)
def test_transposed_convolutions_equal_the_plain_build(
    channels, kernel, stride, dilation, pad, more
):
    depth, count, groups = channels
    weight = np.random.default_rng(0).integers(-127, 128, (depth, count // groups, *kernel))
    attrs = {
        "strides": stride,
        "dilation": dilation,
        "padding": min(pad, min(kernel) - 1),
        "output_padding": int(more and stride > 1),
        "groups": groups,
    }

    def body(_builder, x):
        kernel = constant(weight.astype("int8"))
        return R.nn.conv2d_transpose(x, kernel, out_dtype="int32", **attrs)

    shape = (2, depth, 5, 6)
    equals_the_plain_build(
        plain_tvm.build(body, x=("int16", *shape)), networks.codes(shape, "int8").astype("int16")
    )


OPERATORS = {
    "max_pool": lambda x: R.nn.max_pool2d(x, (3, 3), strides=(2, 2), padding=(1, 1)),
    "avg_pool": lambda x: R.nn.avg_pool2d(x, (3, 3), strides=(2, 2), padding=(1, 1)),
    "adaptive_pool": lambda x: R.nn.adaptive_avg_pool2d(x, (3, 2)),
    "mean": lambda x: R.mean(x, [2, 3]),
    "sum_of_channels": lambda x: R.sum(x, [1]),
    "softmax": lambda x: R.nn.softmax(x, axis=1),
    "softmax_last": lambda x: R.nn.softmax(x, axis=-1),
    "permute": lambda x: R.permute_dims(x, [0, 2, 3, 1]),
    "permute_all": lambda x: R.permute_dims(x, [3, 2, 1, 0]),
    "slice": lambda x: R.strided_slice(x, [2, 3], [1, 0], [8, 9], [2, 3]),
    "pad": lambda x: R.nn.pad(x, [0, 0, 0, 0, 1, 2, 3, 0], "constant", 1.5),
    "concat": lambda x: R.concat([x, R.nn.relu(x)], axis=1),
    "broadcast": lambda x: R.multiply(x, R.mean(x, [2, 3], keepdims=True)),
    "resize": lambda x: R.image.resize2d(x, relax.ShapeExpr([20, 18])),
    "sigmoid": lambda x: R.sigmoid(x),
    "argmax": lambda x: R.argmax(x, axis=1),
    "variance": lambda x: R.variance(x, [1, 2, 3]),
    "cumsum": lambda x: R.cumsum(x, axis=1),
    "full_sum": lambda x: R.sum(x),
}


@pytest.mark.parametrize("channels", [8, 5])
def test_other_operators_are_close_to_the_plain_build(channels):
    """All of `OPERATORS` behind a convolution, so that those that can run channels-last do."""
    kernel = np.random.default_rng(0).normal(size=(channels, 3, 1, 1)).astype("float32")

    def body(builder, x):
        y = builder.emit(R.nn.conv2d(x, constant(kernel)))
        return tuple(builder.emit(apply(y)) for apply in OPERATORS.values())

    shape = (2, 3, 10, 9)
    is_close_to_the_plain_build(plain_tvm.build(body, x=shape), networks.normal(shape))


@pytest.mark.parametrize("symbolic", ["n", "hw", "nhw"])
def test_symbolic_sizes_are_close_to_the_plain_build(symbolic):
    dims = {"n": 2, "h": 18, "w": 22}
    shape = [tirx.Var(name, "int64") if name in symbolic else size for name, size in dims.items()]
    rng = np.random.default_rng(0)
    kernels = [
        rng.normal(size=size).astype("float32")
        for size in [(16, 3, 3, 3), (16, 1, 3, 3), (24, 16, 1, 1), (24, 10)]
    ]
    first, depthwise, pointwise, dense = map(constant, kernels)

    def body(builder, x):
        y = builder.emit(R.nn.relu(builder.emit(R.nn.conv2d(x, first, strides=2, padding=1))))
        y = builder.emit(R.nn.conv2d(y, depthwise, groups=16, padding=1))
        y = builder.emit(R.nn.max_pool2d(builder.emit(R.nn.conv2d(y, pointwise)), (2, 2)))
        return y, builder.emit(R.matmul(builder.emit(R.mean(y, [2, 3])), dense))

    mod = plain_tvm.build(body, x=(shape[0], 3, *shape[1:]))
    is_close_to_the_plain_build(mod, networks.normal((2, 3, 18, 22)))


@networks.runs_on
@pytest.mark.parametrize("symbolic", ["nh", "w"])
@pytest.mark.parametrize("channels", [1, 3, 8])
def test_integer_kernels_of_symbolic_sizes_equal_the_plain_build(target, symbolic, channels):
    dims = {"n": 2, "h": 11, "w": 13}
    shape = [tirx.Var(name, "int64") if name in symbolic else size for name, size in dims.items()]
    rng = np.random.default_rng(0)
    kernel = constant(rng.integers(-127, 128, (24, channels, 3, 3)).astype("int8"))

    def body(_builder, x):
        return R.nn.conv2d(x, kernel, padding=1, out_dtype="int32")

    mod = plain_tvm.build(body, x=("uint8", shape[0], channels, *shape[1:]))
    equals_the_plain_build(mod, networks.codes((2, channels, 11, 13)), target=target)


def test_a_symbolic_sequence_with_attention_is_close_to_the_plain_build():
    length = tirx.Var("s", "int64")
    weight = np.random.default_rng(0).normal(size=(16, 16)).astype("float32")

    def body(builder, x):
        keys = builder.emit(R.permute_dims(builder.emit(R.matmul(x, constant(weight))), [0, 2, 1]))
        scores = builder.emit(R.nn.softmax(builder.emit(R.matmul(x, keys))))
        ones = constant(np.ones(16, "float32"))
        return R.nn.layer_norm(builder.emit(R.matmul(scores, x)), ones, ones, axes=[-1])

    is_close_to_the_plain_build(
        plain_tvm.build(body, x=(2, length, 16)), networks.normal((2, 11, 16))
    )


def test_weights_that_are_inputs_are_close_to_the_plain_build():
    def body(_builder, x, w):
        return R.nn.conv2d(x, w, padding=1)

    mod = plain_tvm.build(body, x=(1, 4, 6, 6), w=(5, 4, 3, 3))
    is_close_to_the_plain_build(mod, networks.normal((1, 4, 6, 6)), networks.normal((5, 4, 3, 3)))


def test_the_bits_do_not_depend_on_threads_or_runs(tmp_path):
    """Floats too: the order of a sum is that of the loops of one tile."""
    mod = networks.float_conv((2, 16, 56, 56), (32, 16, 3, 3), padding=1)
    compile(mod).export_library(str(tmp_path / "m.so"))
    x = networks.normal((2, 16, 56, 56))
    np.save(tmp_path / "x.npy", x)
    script = """
        import numpy, tvm
        library = tvm.runtime.load_module("m.so")
        main = tvm.relax.VirtualMachine(library, tvm.cpu())["main"]
        x = tvm.runtime.tensor(numpy.load("x.npy"))
        numpy.save("y.npy", numpy.stack([main(x).numpy() for _ in range(2)]))
    """
    expected = np.stack(2 * networks.run(mod, x))
    for threads in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            check=True,
            cwd=tmp_path,
            env={**os.environ, "TVM_NUM_THREADS": threads},
        )
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
