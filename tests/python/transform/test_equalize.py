import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as S

from calibrated import calibrated, value_of
from numpy_network import evaluate, evaluate_one
from plain_tvm import build
from realized import normal
from tvm_quant.config import QuantizeConfig
from tvm_quant.op import contraction_axes
from tvm_quant.report import sqnr_db
from tvm_quant.transform import Equalize
from tvm_quant.transform.channel_vector import weight_by_output

R, NN = relax.op, relax.op.nn
CHANNELS = 8
SPREAD = np.float32(4.0 ** -np.arange(CHANNELS))
X = normal(4, 3, 8, 8, seed=3)


def const(array):
    return relax.const(np.float32(array))


def spread(*shape, axis, inverse=False, seed=0):
    along = [1] * len(shape)
    along[axis] = -1
    factors = 1 / SPREAD if inverse else SPREAD
    return const(normal(*shape, seed=seed) * factors.reshape(along))


def first(b, x):
    return b.emit(NN.conv2d(x, spread(CHANNELS, 3, 3, 3, axis=0), padding=1), "first")


def second(b, y):
    weight = spread(4, CHANNELS, 3, 3, axis=1, inverse=True, seed=1)
    y = y if isinstance(y, relax.Var) else b.emit(y)
    return b.emit(NN.conv2d(y, weight), "second")


def relu(b, x):
    return second(b, NN.relu(first(b, x)))


def nothing_between(b, x):
    return second(b, first(b, x))


def leaky_relu(b, x):
    return second(b, NN.leakyrelu(first(b, x), 0.2))


def max_pool(b, x):
    return second(b, NN.max_pool2d(b.emit(NN.relu(first(b, x))), (2, 2), strides=(2, 2)))


def avg_pool(b, x):
    return second(b, NN.avg_pool2d(first(b, x), (2, 2), strides=(2, 2)))


def with_bias(b, x):
    bias = const(normal(1, CHANNELS, 1, 1) * SPREAD.reshape(1, -1, 1, 1))
    return second(b, NN.relu(b.emit(R.add(first(b, x), bias), "bias")))


def with_scalar_bias(b, x):
    return second(b, NN.relu(b.emit(R.add(first(b, x), const(0.125)), "bias")))


def depthwise(b, x):
    weight = spread(CHANNELS, 1, 3, 3, axis=0, inverse=True, seed=1)
    return b.emit(NN.conv2d(b.emit(NN.relu(first(b, x))), weight, groups=CHANNELS), "second")


def from_depthwise(b, x):
    y = b.emit(NN.conv2d(x, const(normal(CHANNELS, 3, 1, 1))), "before")
    y = b.emit(R.sigmoid(y))
    y = b.emit(NN.conv2d(y, spread(CHANNELS, 1, 3, 3, axis=0), groups=CHANNELS), "first")
    return second(b, NN.relu(y))


def grouped(b, x):
    weight = normal(4, 4, 3, 3, seed=1).reshape(2, 2, 4, 3, 3) / SPREAD.reshape(2, 1, 4, 1, 1)
    y = b.emit(NN.relu(first(b, x)))
    return b.emit(NN.conv2d(y, const(weight.reshape(4, 4, 3, 3)), groups=2), "second")


def transposed(b, x):
    y = b.emit(NN.conv2d_transpose(x, spread(3, CHANNELS, 2, 2, axis=1), strides=2), "first")
    weight = spread(CHANNELS, 2, 2, 2, axis=0, inverse=True, seed=1)
    return b.emit(NN.conv2d_transpose(b.emit(NN.relu(y)), weight, groups=2), "second")


def grouped_transposed(b, x):
    x = b.emit(R.concat([x, x], axis=1))
    weight = normal(6, 4, 2, 2, seed=1) * np.repeat(SPREAD.reshape(2, 4), 3, 0)[:, :, None, None]
    y = b.emit(NN.conv2d_transpose(x, const(weight), groups=2), "first")
    return second(b, NN.relu(y))


def dense(b, x):
    y = b.emit(R.matmul(b.emit(R.mean(x, [2, 3])), spread(3, CHANNELS, axis=1)), "first")
    y = b.emit(NN.relu(b.emit(R.add(y, const(normal(CHANNELS) * SPREAD)), "bias")))
    return b.emit(R.matmul(y, spread(CHANNELS, 5, axis=0, inverse=True, seed=1)), "second")


EQUALIZED = [
    relu,
    nothing_between,
    leaky_relu,
    max_pool,
    avg_pool,
    with_bias,
    with_scalar_bias,
    depthwise,
    from_depthwise,
    grouped,
    transposed,
    grouped_transposed,
    dense,
]


def weight(mod, name):
    call = value_of(mod, name)
    return call.args[1].value.numpy(), contraction_axes(call)


def output_range(mod, name):
    return np.abs(weight_by_output(*weight(mod, name))).max(axis=(1, 2))


def input_range(mod, name):
    values, axes = weight(mod, name)
    by_output = np.abs(weight_by_output(values, axes)).max(axis=2)
    return by_output.reshape(axes.groups, -1, by_output.shape[1]).max(axis=1).reshape(-1)


@pytest.mark.parametrize("network", EQUALIZED)
def test_ranges_become_equal_and_the_function_stays(network):
    before = build(network, x=X.shape)
    after = Equalize()(before)
    assert output_range(before, "first").max() > 100 * output_range(before, "first").min()
    np.testing.assert_allclose(
        output_range(after, "first"), input_range(after, "second"), rtol=1e-3
    )
    exact, same = evaluate_one(before, X), evaluate_one(after, X)
    np.testing.assert_allclose(same, exact, rtol=0, atol=1e-6 * np.abs(exact).max())


def test_equalize_moves_the_square_root_of_the_ratio():
    """Ranges 4 and 1 against 1 and 1/4: the factors are 2 and 2."""
    w1, b1 = const([[[[4.0]]], [[[1.0]]]]), const(np.reshape([6, 8], (1, 2, 1, 1)))
    w2 = const([[[[1.0]], [[0.25]]]])
    v1, c1 = const([[[[2.0]]], [[[0.5]]]]), const(np.reshape([3, 4], (1, 2, 1, 1)))
    v2 = const([[[[2.0]], [[0.5]]]])

    @I.ir_module
    class Before:
        @S.function
        def main(x: S.Tensor((1, 1, 4, 4), "float32")) -> S.Tensor((1, 1, 4, 4), "float32"):
            with S.dataflow():
                y = S.nn.conv2d(x, w1)
                z = S.add(y, b1)
                r = S.nn.relu(z)
                s = S.nn.conv2d(r, w2)
                S.output(s)
            return s

    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((1, 1, 4, 4), "float32")) -> S.Tensor((1, 1, 4, 4), "float32"):
            with S.dataflow():
                y = S.nn.conv2d(x, v1)
                z = S.add(y, c1)
                r = S.nn.relu(z)
                s = S.nn.conv2d(r, v2)
                S.output(s)
            return s

    tvm.ir.assert_structural_equal(Equalize()(Before), After)
    tvm.ir.assert_structural_equal(Equalize()(After), After)


def test_chains_are_swept_until_all_ranges_are_equal():
    def network(b, x):
        y = b.emit(NN.relu(first(b, x)))
        weight = spread(CHANNELS, CHANNELS, 3, 3, axis=0, seed=1)
        y = b.emit(NN.relu(b.emit(NN.conv2d(y, weight), "middle")))
        weight = spread(4, CHANNELS, 3, 3, axis=1, inverse=True, seed=2)
        return b.emit(NN.conv2d(y, weight), "last")

    before = build(network, x=X.shape)
    after = Equalize()(before)
    for left, right in (("first", "middle"), ("middle", "last")):
        np.testing.assert_allclose(output_range(after, left), input_range(after, right), rtol=0.01)
    exact, same = evaluate_one(before, X), evaluate_one(after, X)
    np.testing.assert_allclose(same, exact, rtol=0, atol=1e-6 * np.abs(exact).max())


@pytest.mark.parametrize("network", [relu, depthwise, with_bias])
def test_one_scale_per_tensor_gains(network):
    config = QuantizeConfig(per_channel=False)
    mod = build(network, x=X.shape)
    exact = evaluate_one(mod, X)
    plain, equal = (
        sqnr_db(exact, evaluate_one(calibrated(m, X, config=config)[0], X))
        for m in (mod, Equalize()(mod))
    )
    assert equal > plain + 6


def test_dead_channels_stay():
    values = normal(CHANNELS, 3, 3, 3) * SPREAD.reshape(-1, 1, 1, 1)
    values[2] = 0
    last = normal(4, CHANNELS, 3, 3, seed=1)
    last[:, 5] = 0

    def network(b, x):
        y = b.emit(NN.relu(b.emit(NN.conv2d(x, const(values)), "first")))
        return b.emit(NN.conv2d(y, const(last)), "second")

    after = Equalize()(build(network, x=X.shape))
    np.testing.assert_array_equal(weight(after, "first")[0][5], values[5])
    np.testing.assert_array_equal(weight(after, "second")[0][:, 2], last[:, 2])
    assert np.isfinite(evaluate_one(after, X)).all()


def relu6(b, x):
    return second(b, R.clip(first(b, x), 0, 6))


def sigmoid(b, x):
    return second(b, R.sigmoid(first(b, x)))


def fork(b, x):
    y = b.emit(NN.relu(first(b, x)))
    return second(b, y), b.emit(R.mean(y, [2, 3]))


def fork_before_the_relu(b, x):
    y = first(b, x)
    return second(b, NN.relu(y)), b.emit(R.mean(y, [2, 3]))


def the_result_as_well(b, x):
    y = b.emit(NN.relu(first(b, x)), "relu")
    return second(b, y), y


def residual(b, x):
    y = first(b, x)
    return second(b, b.emit(R.add(y, b.emit(NN.conv2d(x, const(normal(8, 3, 1, 1)))))))


def two_biases(b, x):
    bias = const(normal(1, CHANNELS, 1, 1))
    y = b.emit(NN.relu(b.emit(R.add(first(b, x), bias))))
    return second(b, R.add(y, bias))


def multiplied(b, x):
    return second(b, R.multiply(first(b, x), const(normal(1, CHANNELS, 1, 1))))


def reshaped(b, x):
    y = b.emit(R.reshape(first(b, x), (4, CHANNELS * 64)))
    return b.emit(R.matmul(y, const(normal(CHANNELS * 64, 3))), "second")


def run_time_weight(b, x):
    y = b.emit(R.mean(first(b, x), [2, 3]))
    return b.emit(R.matmul(y, b.emit(R.permute_dims(y, [1, 0]))))


def other_axis(b, x):
    """The matmul contracts the width, not the channels."""
    return b.emit(R.matmul(first(b, x), const(normal(8, 3))), "second")


def shared_weight(b, x):
    weight = const(normal(3, 3, 3, 3) * np.float32([1, 0.1, 0.01]).reshape(3, 1, 1, 1))
    y = b.emit(NN.relu(b.emit(NN.conv2d(x, weight), "first")))
    return b.emit(NN.conv2d(y, weight), "second")


def weight_shared_with_another_layer(b, x):
    weight = spread(CHANNELS, 3, 1, 1, axis=0)
    other = b.emit(NN.conv2d(b.emit(R.sigmoid(x)), weight), "other")
    y = b.emit(NN.relu(b.emit(NN.conv2d(x, weight), "first")))
    return second(b, y), other


@pytest.mark.parametrize(
    "network",
    [
        shared_weight,
        weight_shared_with_another_layer,
        relu6,
        sigmoid,
        fork,
        fork_before_the_relu,
        the_result_as_well,
        residual,
        two_biases,
        multiplied,
        reshaped,
        run_time_weight,
        other_axis,
    ],
)
def test_what_does_not_commute_with_factors_or_has_other_readers_stays(network):
    mod = build(network, x=X.shape)
    tvm.ir.assert_structural_equal(Equalize()(mod), mod)
    assert all(np.isfinite(result).all() for result in evaluate(mod, X))


def test_equalize_is_off_by_default():
    mod = build(relu, x=X.shape)
    assert Equalize(QuantizeConfig())(mod).same_as(mod)
    assert not Equalize(QuantizeConfig(equalize=True))(mod).same_as(mod)
