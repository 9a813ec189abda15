from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as S

from calibrated import calibrated, names, quantizer_values, value_of
from numpy_network import all_values
from plain_tvm import build
from realized import normal
from tvm_quant.bench.processes import fresh_processes
from tvm_quant.config import QuantizeConfig, WeightRounding
from tvm_quant.ir import bindings, constant_value
from tvm_quant.op import (
    Kind,
    QuantSpec,
    contraction_axes,
    quantize_numpy,
    scale_of,
    simulated_quantize,
    simulated_quantize_numpy,
    spec_of,
)
from tvm_quant.statistics import Statistics
from tvm_quant.transform import (
    Annotate,
    CalibrateActivations,
    CalibrateWeights,
    MatchScales,
    Prepare,
    Profile,
    Realize,
    RoundWeights,
    round_weights,
)
from tvm_quant.transform.quantizers import set_constants, set_scales, strip_quantizers
from tvm_quant.transform.weight_rounding import (
    SHARES,
    LayerInputs,
    blocks,
    gather_moments,
    patches,
    weight_layers,
)

R, NN = relax.op, relax.op.nn
S8 = QuantSpec(narrow=True)
FOUR_BITS = QuantizeConfig(nbit_weight=4)


def const(array):
    return relax.const(np.float32(array))


# Two inputs that are always equal: what counts is the sum of their weights, 0.8 steps. The nearest
# codes are 0 and 0. Values of mean 1 and mean square 4: the bias takes off 1 * 0.5.
W = const(np.full((1, 2, 1, 1), 0.2))
ON_GRID = const(np.reshape([0, 0.5], (1, 2, 1, 1)))
BIAS = const(np.full((1, 1, 1, 1), 3))
CHANGED = const(np.full((1, 1, 1, 1), 2.5))
UNEQUAL = const(normal(8, 4, 3, 3, seed=1) * np.geomspace(0.02, 1, 8).reshape(-1, 1, 1, 1))
EQUAL = np.float32([[[[-2, 2], [2, 2]]] * 2]).reshape(1, 2, 2, 2)


@I.ir_module
class Before:
    @S.function
    def main(x: S.Tensor((1, 2, 2, 2), "float32")) -> S.Tensor((1, 1, 2, 2), "float32"):
        with S.dataflow():
            x_q = simulated_quantize(x, 0.1, spec=S8, kind=Kind.INPUT)
            w_q = simulated_quantize(W, 0.5, spec=S8, kind=Kind.WEIGHT)
            y = S.nn.conv2d(x_q, w_q)
            z = S.add(y, BIAS)
            S.output(z)
        return z


def test_weights_that_meet_equal_inputs_share_their_rounding_error():
    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((1, 2, 2, 2), "float32")) -> S.Tensor((1, 1, 2, 2), "float32"):
            with S.dataflow():
                x_q = simulated_quantize(x, 0.1, spec=S8, kind=Kind.INPUT)
                w_q = simulated_quantize(ON_GRID, 0.5, spec=S8, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, w_q)
                z = S.add(y, CHANGED)
                S.output(z)
            return z

    tvm.ir.assert_structural_equal(RoundWeights(dataset=[{"x": EQUAL}])(Before), After)


@pytest.mark.parametrize(
    ("config", "dataset"),
    [
        (QuantizeConfig(weight_rounding=WeightRounding.NEAREST), [{"x": EQUAL}]),
        (QuantizeConfig(), None),
        (QuantizeConfig(), [{"x": np.full_like(EQUAL, np.nan)}]),
    ],
    ids=["nearest", "no data", "no finite data"],
)
def test_without_a_reason_weights_stay_in_float(config, dataset):
    tvm.ir.assert_structural_equal(RoundWeights(config, dataset)(Before), Before)


def smooth(*shape, seed=0):
    """Data whose neighbours are alike, along channels as well."""
    data = normal(*shape, seed=seed)
    for axis in range(1, data.ndim):
        data = data + np.roll(data, 1, axis)
    return np.float32(data + 1)


X = smooth(8, 4, 8, 8)

#: {name: layer of data of the shape of X}
LAYERS = {
    "plain": lambda x: NN.conv2d(x, const(normal(8, 4, 3, 3, seed=1)), padding=1),
    "pointwise": lambda x: NN.conv2d(x, const(normal(8, 4, 1, 1, seed=1)), strides=2),
    "grouped": lambda x: NN.conv2d(x, const(normal(6, 2, 3, 3, seed=1)), groups=2),
    "depthwise": lambda x: NN.conv2d(x, const(normal(4, 1, 3, 3, seed=1)), groups=4, padding=1),
    "transposed": lambda x: NN.conv2d_transpose(
        x, const(normal(4, 3, 3, 3, seed=1)), strides=2, groups=2
    ),
    "matmul": lambda x: R.matmul(x, const(normal(8, 5, seed=1))),
}
CONFIGS = {
    "per channel": FOUR_BITS,
    "per tensor": QuantizeConfig(nbit_weight=4, per_channel=False),
    "powers of two": QuantizeConfig(nbit_weight=4, power_of_two_scales=True),
    "8 bits": QuantizeConfig(),
}


def one_layer(layer, batch=8):
    return build(lambda b, x: b.emit(layer(x), "y"), x=(batch, *X.shape[1:]))


def error_of_weights(mod, x):
    """What rounding the weights adds to `y`, in each output channel: (O, all else)."""
    constants = {
        name: (call, constant_value(call.args[0])) for name, call in quantizer_values(mod).items()
    }
    rounded = {
        name: simulated_quantize_numpy(value, *scale_of(call), spec_of(call))
        for name, (call, value) in constants.items()
        if value is not None
    }
    return all_values(strip_quantizers(set_constants(mod, rounded)), x)["y"]


def by_channel(mod, values):
    call = value_of(mod, "y_product" if "y_product" in names(mod) else "y")
    axis = contraction_axes(call).output
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_every_layer_gets_closer_to_float_and_its_weights_onto_the_grid(layer, config):
    before, _ = calibrated(one_layer(layer), X, config=config)
    after = RoundWeights(config, [{"x": X}])(before)
    exact = all_values(strip_quantizers(before), X)["y"]
    errors = [by_channel(mod, error_of_weights(mod, X) - exact) for mod in (before, after)]
    nearest, found = (error.var(axis=1).sum() for error in errors)
    assert found < 0.97 * nearest
    weight = quantizer_values(after)[str(value_of(before, "y").args[1].name)]
    stored, (scale, zero_point) = constant_value(weight.args[0]), scale_of(weight)
    on_grid = simulated_quantize_numpy(stored, scale, zero_point, spec_of(weight))
    np.testing.assert_array_equal(on_grid, stored)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_the_mean_of_every_channel_stays(monkeypatch, layer):
    monkeypatch.setattr(patches, "POSITIONS", 100)
    x = X[:1]
    before, _ = calibrated(one_layer(layer, 1), x, config=FOUR_BITS)
    after = RoundWeights(FOUR_BITS, [{"x": x}])(before)
    means = [by_channel(mod, error_of_weights(mod, x)).mean(axis=1) for mod in (before, after)]
    np.testing.assert_allclose(*means, rtol=1e-4, atol=1e-4)


def test_a_symbolic_batch_and_any_batches_give_the_same_weights():
    layer = LAYERS["plain"]
    fixed, _ = calibrated(one_layer(layer, 1), X[:1], config=FOUR_BITS)
    free, _ = calibrated(one_layer(layer, tirx.Var("n", "int64")), X[:1], config=FOUR_BITS)
    one_by_one = RoundWeights(FOUR_BITS, [{"x": x} for x in np.split(X, 8)])(fixed)
    batched = RoundWeights(FOUR_BITS, [{"x": X[:5]}, {"x": X[5:]}])(free)
    assert_same_constants(one_by_one, batched)


def scales_after(config, before):
    after = RoundWeights(config, [{"x": X}])(before)
    weight = quantizer_values(after)[str(value_of(before, "y").args[1].name)]
    return scale_of(weight)[0].reshape(-1)


@pytest.mark.parametrize("bits", [2, 4])
def test_steps_of_few_bits_are_chosen_by_the_error_of_each_output(bits):
    covering = QuantizeConfig(nbit_weight=bits, weight_estimator="max")
    before, _ = calibrated(one_layer(LAYERS["plain"]), X, config=covering)
    exact = all_values(strip_quantizers(before), X)["y"]
    free = QuantizeConfig(nbit_weight=bits)
    errors = {
        name: by_channel(after, error_of_weights(after, X) - exact).var(axis=1)
        for name, after in (
            ("covering", RoundWeights(covering, [{"x": X}])(before)),
            ("free", RoundWeights(free, [{"x": X}])(before)),
        )
    }
    assert errors["free"].sum() < 0.9 * errors["covering"].sum()
    largest = scale_of(quantizer_values(before)[str(value_of(before, "y").args[1].name)])[0]
    shares = scales_after(free, before) / largest.reshape(-1)
    assert all(np.isclose(share, SHARES, rtol=1e-5).any() for share in shares)


def test_steps_are_kept_where_an_estimator_is_named_or_a_sum_needs_them():
    config = QuantizeConfig(nbit_weight=4)
    before, _ = calibrated(one_layer(LAYERS["plain"]), X, config=config)
    name = str(value_of(before, "y").args[1].name)
    scale, zero_point = scale_of(quantizer_values(before)[name])
    raised = set_scales(before, {name: (4 * scale, zero_point)})
    np.testing.assert_array_equal(scales_after(config, raised), 4 * scale.reshape(-1))
    named = QuantizeConfig(nbit_weight=4, weight_estimator="max")
    np.testing.assert_array_equal(scales_after(named, before), scale.reshape(-1))
    eight = QuantizeConfig(nbit_weight=8)
    before, _ = calibrated(one_layer(LAYERS["plain"]), X, config=eight)
    scale, _ = scale_of(quantizer_values(before)[name])
    np.testing.assert_array_equal(scales_after(eight, before), scale.reshape(-1))


def test_steps_that_are_powers_of_two_stay_so():
    config = QuantizeConfig(nbit_weight=4, power_of_two_scales=True)
    before, _ = calibrated(one_layer(LAYERS["plain"]), X, config=config)
    mantissas, _ = np.frexp(scales_after(config, before))
    np.testing.assert_array_equal(mantissas, 0.5)


def test_what_profile_saw_spares_a_run(monkeypatch):
    mod = tvm.transform.Sequential([Prepare(), Annotate(FOUR_BITS), CalibrateWeights(FOUR_BITS)])(
        one_layer(LAYERS["plain"])
    )
    inputs, statistics = LayerInputs(), Statistics()
    Profile([{"x": X}], statistics, inputs=inputs)(mod)
    before = CalibrateActivations(statistics, FOUR_BITS)(mod)
    measured = RoundWeights(FOUR_BITS, [{"x": X}])(before)
    monkeypatch.setattr(round_weights, "gather_moments", None)
    tvm.ir.assert_structural_equal(
        RoundWeights(FOUR_BITS, [{"x": X}], inputs=inputs)(before), measured
    )


def test_bad_samples_change_nothing():
    layer = LAYERS["plain"]
    mod, _ = calibrated(one_layer(layer, 1), X[:1], config=FOUR_BITS)
    good = [{"x": x} for x in np.split(X, 8)]
    bad = [{"x": np.full_like(X[:1], value)} for value in (np.nan, np.inf)]
    clean, mixed = (RoundWeights(FOUR_BITS, data)(mod) for data in (good, [*good, *bad]))
    tvm.ir.assert_structural_equal(mixed, clean)


def test_an_outlier_does_not_spoil_the_others():
    mod, _ = calibrated(one_layer(LAYERS["plain"], 1), X[:1], config=FOUR_BITS)
    data = [{"x": x} for x in np.split(X, 8)]
    outlier = {"x": 1e4 * normal(1, *X.shape[1:], seed=3)}
    exact = all_values(strip_quantizers(mod), X[:1])["y"]
    errors = [
        by_channel(m, error_of_weights(m, X[:1]) - exact).var(axis=1).sum()
        for m in (mod, RoundWeights(FOUR_BITS, [*data, outlier])(mod))
    ]
    assert errors[1] < 0.8 * errors[0]


def test_inputs_are_told_apart_by_name():
    weights = const(normal(8, 4, 3, 3, seed=1)), const(normal(8, 4, 3, 3, seed=2))

    def body(b, left, right):
        y = b.emit(NN.conv2d(left, weights[0]), "left_conv")
        return b.emit(R.add(y, b.emit(NN.conv2d(right, weights[1]), "right_conv")), "sum")

    left, right = X[:1], smooth(1, 4, 8, 8, seed=5)
    mod, _ = calibrated(build(body, a=left.shape, b=right.shape), left, right, config=FOUR_BITS)
    after, swapped = (
        RoundWeights(FOUR_BITS, [batch])(mod)
        for batch in ({"a": left, "b": right}, {"b": right, "a": left})
    )
    tvm.ir.assert_structural_equal(after, swapped)


def shared_weight(b, x):
    w = simulated_quantize(W, 0.5, spec=S8, kind=Kind.WEIGHT)
    w = b.emit(w, "w_q")
    return R.add(b.emit(NN.conv2d(x, w), "one"), b.emit(NN.conv2d(R.abs(x), w), "two"))


def uncalibrated_weight(b, x):
    w = b.emit(simulated_quantize(W, spec=S8, kind=Kind.WEIGHT), "w_q")
    return NN.conv2d(x, w)


def weight_in_float(_b, x):
    return NN.conv2d(x, W)


@pytest.mark.parametrize("body", [shared_weight, uncalibrated_weight, weight_in_float])
def test_other_weights_are_left(body):
    mod = build(lambda b, x: b.emit(body(b, x)), x=EQUAL.shape)
    tvm.ir.assert_structural_equal(RoundWeights(dataset=[{"x": EQUAL}])(mod), mod)


def test_a_layer_of_symbolic_size_is_left():
    def body(b, x):
        w = b.emit(simulated_quantize(W, 0.5, spec=S8, kind=Kind.WEIGHT), "w_q")
        return b.emit(NN.conv2d(x, w))

    mod = build(body, x=(1, 2, tirx.Var("h", "int64"), 2))
    tvm.ir.assert_structural_equal(RoundWeights(dataset=[{"x": EQUAL}])(mod), mod)


def test_integers_hold_the_chosen_codes():
    mod, _ = calibrated(one_layer(LAYERS["plain"]), X)
    after = RoundWeights(dataset=[{"x": X}])(mod)
    name = str(value_of(mod, "y").args[1].name)
    weight = quantizer_values(after)[name]
    (scale, zero_point), stored = scale_of(weight), constant_value(weight.args[0])
    codes = np.rint(stored.astype("float64") / scale).astype("int8")
    np.testing.assert_array_equal(quantize_numpy(stored, scale, zero_point, spec_of(weight)), codes)
    realized = Realize()(after)
    constants = [
        constant_value(arg)
        for binding in bindings(realized["main"])
        for arg in getattr(binding.value, "args", ())
        if constant_value(arg) is not None
    ]
    assert any(c.dtype == "int8" and np.array_equal(c, codes) for c in constants)


def assert_same_constants(one, other):
    pairs = zip(bindings(one["main"]), bindings(other["main"]), strict=True)
    for left, right in pairs:
        operands = (getattr(binding.value, "args", []) for binding in (left, right))
        for a, b in zip(*operands, strict=True):
            if constant_value(a) is not None:
                np.testing.assert_array_equal(constant_value(a), constant_value(b))


@pytest.mark.parametrize(
    "executor",
    [lambda: ThreadPoolExecutor(3), lambda: fresh_processes(1)],
    ids=["threads", "spawn"],
)
def test_any_executor_gives_the_same_bits(executor):
    data = [{"x": sample[None]} for sample in X]
    before, _ = calibrated(one_layer(LAYERS["grouped"], batch=1), X[:1], config=FOUR_BITS)
    alone = RoundWeights(FOUR_BITS, data)(before)
    with executor() as workers:
        after = RoundWeights(FOUR_BITS, data, executor=workers)(before)
    tvm.ir.assert_structural_equal(after, alone)


def test_codes_stay_within_the_pairs_of_the_hardware():
    """64.4 is rounded up to make up for others that were rounded down."""
    weight = np.full((4, 16, 1, 1), 64.4)
    x = smooth(4, 16, 8, 8)
    config = QuantizeConfig(hardware="x86_avx2")
    mod, _ = calibrated(
        build(lambda b, x: b.emit(NN.conv2d(x, const(weight)), "conv"), x=x.shape),
        x,
        config=config,
    )
    mod = set_scales(mod, {"conv_weight_q": (np.ones((4, 1, 1, 1), "float32"), np.int32(0))})
    largest = []
    for row in ("x86_vnni", "x86_avx2"):
        rounded = RoundWeights(QuantizeConfig(hardware=row), [{"x": x}])(mod)
        codes = constant_value(quantizer_values(rounded)["conv_weight_q"].args[0])
        assert (codes == np.round(codes)).all()
        largest.append(np.abs(codes.reshape(-1, 2)).sum(1).max())
    assert largest[0] > 128 == largest[1]


def test_moments_follow_the_factors_of_match_scales():
    def body(b, x):
        y = b.emit(R.nn.relu(b.emit(NN.conv2d(x, UNEQUAL), "first")), "act")
        return b.emit(NN.conv2d(y, const(normal(8, 8, 3, 3, seed=2))), "second")

    config, x = QuantizeConfig(), X[:1]  # of one sample, weights do not matter
    mod = tvm.transform.Sequential([Prepare(), Annotate(config), CalibrateWeights(config)])(
        build(body, x=x.shape)
    )
    inputs, statistics = LayerInputs(), Statistics()
    passes = [
        Profile([{"x": x}], statistics, inputs=inputs),
        CalibrateActivations(statistics, config),
        MatchScales(statistics, config, inputs=inputs),
    ]
    matched = tvm.transform.Sequential(passes)(mod)
    assert inputs.factors
    for layer in weight_layers(matched["main"]).values():
        measured = gather_moments(
            strip_quantizers(matched), {layer.name: layer.reading}, [{"x": x}]
        )[layer.name]
        known = inputs.of(layer)
        np.testing.assert_allclose(known.mean, measured.mean, rtol=1e-5, atol=1e-6)
        covariances = [found.covariance(slice(None)) for found in (known, measured)]
        np.testing.assert_allclose(*covariances, rtol=1e-4, atol=1e-5)


def test_outputs_are_rounded_some_at_a_time_to_the_same_codes(monkeypatch):
    before, _ = calibrated(one_layer(LAYERS["plain"]), X, config=FOUR_BITS)
    whole = RoundWeights(FOUR_BITS, [{"x": X}])(before)
    monkeypatch.setattr(blocks, "ELEMENTS", 3 * 36)
    assert_same_constants(whole, RoundWeights(FOUR_BITS, [{"x": X}])(before))
