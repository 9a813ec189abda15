import numpy as np
import pytest
import tvm
from tvm import relax

from calibrated import calibrated, quantizer_values
from numpy_network import evaluate_one
from plain_tvm import build, run_one
from realized import dtypes, normal
from tvm_quant.config import QuantizeConfig
from tvm_quant.op import scale_of
from tvm_quant.report import sqnr_db
from tvm_quant.transform import FitAccumulators, Realize
from tvm_quant.transform.quantizers import set_scales, strip_quantizers

R, NN = relax.op, relax.op.nn
X = normal(4, 3, 8, 8)
TINY = np.float32([1e-9, 1, 1e-12, 1])  # sizes of the weights of each output channel


def const(array):
    return relax.const(np.float32(array))


def tiny(*shape, axis=0, seed=1):
    """Weights of which two output channels are next to nothing."""
    along = [1] * len(shape)
    along[axis] = -1
    return const(normal(*shape, seed=seed) * TINY.reshape(along))


def bias(*values):
    return const(np.reshape(values, (1, -1, 1, 1)))


def fitted(network, *inputs, config=None):
    """(before, after) the pass."""
    shapes = {f"x{i}": x.shape for i, x in enumerate(inputs)}
    mod, _ = calibrated(build(_body(network), **shapes), *inputs, config=config)
    return mod, FitAccumulators(config)(mod)


def _body(network):
    return lambda b, *xs: b.emit(network(b, *xs), "last")


def scale(mod, name):
    return scale_of(quantizer_values(mod)[name])[0].astype("float64")


def biased(b, x):
    y = b.emit(NN.conv2d(x, tiny(4, 3, 3, 3)), "conv")
    return R.add(y, bias(5, 5, 0, -1))


def read(b, y):
    """Something that reads a sum as integers."""
    return NN.conv2d(b.emit(y, "sum"), const(normal(2, 4, 1, 1, seed=3)))


def residual(b, x, y):
    y = b.emit(NN.conv2d(y, const(normal(4, 3, 3, 3, seed=2)), padding=1), "other")
    z = b.emit(NN.conv2d(x, tiny(4, 3, 3, 3), padding=1), "conv")
    return read(b, R.add(y, z))


def residual_behind_a_pool(b, x, y):
    y = b.emit(NN.conv2d(y, const(normal(4, 3, 3, 3, seed=2)), padding=1), "other")
    y = b.emit(NN.max_pool2d(y, (2, 2), strides=(2, 2)), "pool")
    z = b.emit(NN.conv2d(x, tiny(4, 3, 3, 3), padding=1, strides=2), "conv")
    return read(b, R.add(y, z))


def everything_added(b, x, y):
    """A bias, a clamp, a residual: they add up."""
    y = b.emit(NN.conv2d(y, const(normal(4, 3, 3, 3, seed=2)), padding=1), "other")
    z = b.emit(NN.conv2d(x, tiny(4, 3, 3, 3), padding=1), "conv")
    z = b.emit(NN.relu(b.emit(R.add(z, bias(5, 5, 0, -1)), "biased")), "relu")
    return read(b, R.add(y, z))


def scaled_before_the_bias(b, x):
    y = b.emit(NN.conv2d(x, tiny(4, 3, 3, 3)), "conv")
    y = b.emit(R.multiply(b.emit(R.clip(y, -9, 9), "clip"), bias(0.01, 1, 0, 1)), "product")
    return R.add(y, bias(5, 5, 5, 5))


def behind_a_max_pool(b, x):
    y = b.emit(NN.conv2d(x, const(normal(3, 3, 3, 3, seed=2))), "first")
    y = b.emit(NN.max_pool2d(y, (2, 2)), "pool")
    return R.add(b.emit(NN.conv2d(y, tiny(4, 3, 3, 3)), "conv"), bias(5, 5, 0, -1))


def behind_a_concat(b, x):
    y = b.emit(NN.conv2d(x, const(normal(2, 3, 3, 3, seed=2))), "left")
    z = b.emit(NN.conv2d(x, const(normal(1, 3, 3, 3, seed=3))), "right")
    y = b.emit(R.concat([y, z], axis=1), "both")
    return R.add(b.emit(NN.conv2d(y, tiny(4, 3, 1, 1)), "conv"), bias(5, 5, 0, -1))


def transposed(b, x):
    y = b.emit(NN.conv2d_transpose(x, tiny(3, 4, 2, 2, axis=1), strides=2), "conv")
    return R.add(y, bias(5, 5, 0, -1))


def dense(b, x):
    y = b.emit(R.mean(x, [2, 3]), "mean")
    y = b.emit(R.matmul(y, tiny(3, 4, axis=1)), "conv")
    return R.add(y, const([5, 5, 0, -1]))


ONE = [biased, behind_a_max_pool, behind_a_concat, transposed, dense, scaled_before_the_bias]
TWO = [residual, residual_behind_a_pool, everything_added]
NETWORKS = [(network, (X,)) for network in ONE] + [
    (network, (X, normal(4, 3, 8, 8, seed=5))) for network in TWO
]


@pytest.mark.parametrize(("network", "inputs"), NETWORKS, ids=[n.__name__ for n in ONE + TWO])
@pytest.mark.parametrize("per_channel", [True, False])
def test_sums_stay_in_32_bits_and_lose_nothing(network, inputs, per_channel):
    before, after = fitted(network, *inputs, config=QuantizeConfig(per_channel=per_channel))
    if per_channel:
        assert "int64" in dtypes(Realize()(before)).values()
    assert "int64" not in dtypes(Realize()(after)).values()
    exact = evaluate_one(strip_quantizers(before), *inputs)
    noise = [sqnr_db(exact, evaluate_one(mod, *inputs)) for mod in (before, after)]
    assert noise[1] > min(noise[0], 40) - 0.1
    again = FitAccumulators()(after)
    tvm.ir.assert_structural_equal(again, after)


def test_the_scale_is_raised_until_the_bias_takes_30_bits():
    before, after = fitted(biased, X)
    step, scales = scale(before, "x0_q"), scale(before, "conv_weight_q")
    expected = np.maximum(scales, np.reshape([5, 5, 0, 1], (-1, 1, 1, 1)) / (step * 2.0**30))
    assert (expected != scales).reshape(-1).tolist() == [True, False, False, False]
    wanted = set_scales(before, {"conv_weight_q": (np.float32(expected), np.zeros((4, 1, 1, 1)))})
    tvm.ir.assert_structural_equal(after, wanted)


def test_the_largest_code_of_a_residual_counts():
    _before, after = fitted(residual, X, normal(4, 3, 8, 8, seed=5))
    call = quantizer_values(after)["other_q"]
    other, zero_point = scale_of(call)
    largest = other * max(zero_point, 255 - zero_point)
    raised = scale(after, "conv_weight_q").reshape(-1)[[0, 2]]
    np.testing.assert_allclose(raised * scale(after, "x0_q") * 2.0**30, largest, rtol=1e-6)


def test_addends_of_a_chain_add_up():
    inputs = X, normal(4, 3, 8, 8, seed=5)
    alone = scale(fitted(residual, *inputs)[1], "conv_weight_q").reshape(-1)
    chain = scale(fitted(everything_added, *inputs)[1], "conv_weight_q").reshape(-1)
    step = scale(fitted(residual, *inputs)[1], "x0_q")
    np.testing.assert_allclose((chain - alone)[[0, 2]] * step * 2.0**30, [5, 0], rtol=1e-3)


def test_what_is_added_after_a_product_is_seen_before_it():
    _before, after = fitted(scaled_before_the_bias, X)
    step, raised = scale(after, "x0_q"), scale(after, "conv_weight_q").reshape(-1)
    assert raised[0] * step * 2.0**30 == pytest.approx(5 / 0.01, rel=1e-5)
    assert raised[2] * step * 2.0**30 == pytest.approx(5, rel=1e-5)  # times 0: the scale stays


def test_layers_that_share_a_weight_share_the_larger_scale():
    weight = tiny(4, 3, 3, 3)

    def network(b, x, y):
        left = b.emit(NN.conv2d(x, weight), "left")
        right = b.emit(NN.conv2d(y, weight), "right")
        left = b.emit(R.add(left, bias(5, 0, 0, 0)), "left_biased")
        right = b.emit(R.add(right, bias(0, 0, 7, 0)), "right_biased")
        return R.concat([left, right], axis=1)

    before, after = fitted(network, X, normal(4, 3, 8, 8, seed=5))
    (name,) = [name for name in quantizer_values(before) if "weight" in name]
    raised = scale(after, name).reshape(-1) > scale(before, name).reshape(-1)
    assert raised.tolist() == [True, False, True, False]
    assert "int64" not in dtypes(Realize()(after)).values()


def test_grouped_transposed_weights_are_raised_block_by_block():
    def network(b, x):
        weight = normal(4, 2, 2, 2, seed=1)
        weight[2:, 1] *= 1e-9  # channel 3: output 1 of group 1
        y = b.emit(NN.conv2d_transpose(x, const(weight), strides=2, groups=2), "conv")
        return R.add(y, bias(5, 5, 5, 5))

    before, after = fitted(network, normal(4, 4, 3, 3))
    raised = scale(after, "conv_weight_q") > scale(before, "conv_weight_q")
    assert raised[:, :, 0, 0].tolist() == [[False, False]] * 2 + [[False, True]] * 2
    assert "int64" not in dtypes(Realize()(after)).values()


@pytest.mark.parametrize("hardware", ["vta", "generic"])
def test_powers_of_two_stay_powers_of_two(hardware):
    config = QuantizeConfig(hardware=hardware)
    before, after = fitted(biased, X, config=config)
    raised = scale(after, "conv_weight_q").reshape(-1)
    assert raised[0] > scale(before, "conv_weight_q").reshape(-1)[0]
    is_power = np.frexp(raised)[0] == 0.5
    assert is_power.all() == (hardware == "vta")


def fits(b, x):
    y = b.emit(NN.conv2d(x, const(normal(4, 3, 3, 3))), "conv")
    return R.add(y, bias(5, 5, 0, -1))


def no_bias(b, x):
    return NN.conv2d(x, tiny(4, 3, 3, 3))


def bias_of_an_average(b, x):
    y = b.emit(NN.conv2d(x, tiny(4, 3, 3, 3)), "conv")
    y = b.emit(NN.conv2d(y, const(normal(4, 4, 3, 3))), "second")
    return R.add(b.emit(R.mean(y, [2, 3], keepdims=True), "mean"), bias(9, 9, 9, 9))


@pytest.mark.parametrize("network", [fits, no_bias, bias_of_an_average])
def test_what_fits_stays(network):
    before, after = fitted(network, X)
    tvm.ir.assert_structural_equal(after, before)


def test_a_float_network_stays():
    mod = build(_body(biased), x=X.shape)
    tvm.ir.assert_structural_equal(FitAccumulators()(mod), mod)


def test_integers_equal_the_simulation():
    inputs = X, normal(4, 3, 8, 8, seed=5)
    _before, after = fitted(everything_added, *inputs)
    simulated = evaluate_one(after, *inputs)
    error = np.abs(run_one(Realize()(after), *inputs) - simulated)
    assert error.max() < 1e-3 * np.abs(simulated).max()
