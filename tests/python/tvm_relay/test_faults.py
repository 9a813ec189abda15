"""What went wrong in the old stack on small networks, as what is right."""

import numpy as np
import pytest
import tvm

import plain_tvm
import tvm_relay as relay
from tvm_quant.errors import ConfigError, DatasetError
from tvm_quant.ir.reasons import float_reasons
from tvm_quant.transform.annotate import NothingQuantizedWarning
from tvm_relay import graph_executor
from tvm_relay_networks import (
    Net,
    data,
    error,
    layers,
    operators,
    outputs,
    quantized,
    relative,
    samples,
)

#: Relative L2 error of a sound 8-bit network of a few layers.
SOUND = 0.06

#: How activations are calibrated, with data and without.
MODES = ("global_scale", "kl_divergence", "percentile")


def all_integers(expr, mode="kl_divergence"):
    """Operators of the network between its conversions, all of which compute on integers."""
    mod = quantized(expr, mode, partition_conversions="fully_integral")
    middle = tvm.IRModule({"main": mod["quantized_main"]})
    assert operators(middle, "float32") == operators(middle, "int64") == []
    return operators(middle, "int8")


def in_the_middle(make, channels=4):
    """What `make` computes of a convolution, read by another one."""
    net = Net()
    return net.conv(make(net, net.conv(data(1, 4, 8, 8), 4, 4)), channels, 4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tail", ["relu", "bias_add", "conv"])
def test_a_concatenation_with_a_branch_in_float_is_sound(tail, mode):
    net, x = Net(), data(1, 4, 8, 8)
    y = relay.nn.relu(net.conv(x, 4, 4))
    joined = relay.concatenate([y, net.conv(y, 4, 4)], axis=1)
    tails = {
        "relu": lambda: relay.nn.relu(joined),
        "bias_add": lambda: relay.nn.bias_add(joined, relay.const(np.ones(8, "float32"))),
        "conv": lambda: net.conv(joined, 8, 4),
    }
    mod = quantized(tails[tail](), mode, skip_conv_layers=[0])
    assert layers(mod, "float32") == ["nn.conv2d"]
    assert layers(mod) == ["nn.conv2d"] * (2 if tail == "conv" else 1)
    assert error(tails[tail](), mode=mode, skip_conv_layers=[0]) < SOUND


@pytest.mark.parametrize("mode", ["kl_divergence", "percentile"])
def test_a_concatenation_of_three_large_branches_does_not_wrap_around(mode):
    net, x = Net(), data(1, 4, 8, 8)
    joined = relay.concatenate([relay.nn.relu(net.conv(x, 4, 4)) * 6.0 for _ in range(3)], axis=1)
    mod = relay.to_relax(joined)
    assert outputs(mod, samples(mod, 1, seed=7)[0])[0].max() > 2 * 8.0  # twice `global_scale`
    assert all_integers(net.conv(joined, 12, 4), mode)[-1] == "concat"
    assert error(net.conv(joined, 12, 4), mode=mode) < SOUND


@pytest.mark.parametrize("mode", MODES)
def test_a_concatenation_of_pooled_branches_is_one_of_bytes(mode):
    net, x = Net(), data(1, 4, 8, 8)
    pools = [relay.nn.max_pool2d(net.conv(x, 4, 4), (2, 2), (2, 2)) for _ in range(2)]
    y = net.conv(relay.concatenate(pools, axis=1), 8, 4)
    assert all_integers(y, mode)[-2:] == ["nn.max_pool2d", "concat"]
    assert error(y, mode=mode) < SOUND


@pytest.mark.parametrize(
    "product",
    [
        lambda _net, y: y * relay.clip(y + 3.0, 0.0, 6.0) / 6.0,
        lambda _net, y: relay.clip(y + 3.0, 0.0, 6.0) / 6.0 * y,
        lambda _net, y: y * y,
        lambda net, y: relay.nn.relu(y) * relay.nn.relu(net.conv(y, 4, 4)),
        lambda net, y: y * net.conv(data(1, 4, 8, 8, name="z"), 4, 4),
    ],
    ids=["hard_swish", "hard_sigmoid", "square", "product", "product_of_signed"],
)
def test_a_product_of_two_quantized_tensors_is_sound(product):
    assert all_integers(in_the_middle(product))
    assert error(in_the_middle(product)) < SOUND


def test_scalars_beside_quantized_tensors_work():
    y = in_the_middle(lambda _net, y: (y + 1.0) * (1 / 5.6))
    assert all_integers(y) == ["tvm_quant.requantize"]
    assert error(y) < SOUND


@pytest.mark.parametrize("weight_scale", ["max", "power2"])
@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-8])
def test_a_bias_of_zero_or_next_to_it_does_no_harm(size, weight_scale):
    bias = relay.const(np.full(4, size, "float32"))
    y = relay.nn.bias_add(Net().conv(data(1, 4, 8, 8), 4, 4), bias)
    assert error(y, weight_scale=weight_scale) < SOUND


def test_weights_of_zero_give_zeros():
    x = data(1, 4, 8, 8)
    y = relay.nn.conv2d(x, relay.const(np.zeros((4, 4, 3, 3), "float32")), padding=(1, 1))
    mod = quantized(y)
    (got,) = outputs(mod, samples(mod, 1)[0])
    np.testing.assert_array_equal(got, np.zeros((1, 4, 8, 8), "float32"))


def test_a_residual_branch_a_hundred_million_times_smaller_does_no_harm():
    def residual(net, y):
        small = relay.nn.conv2d(y, net.weight(4, 4, 3, 3, scale=1e-8), padding=(1, 1))
        return y + small

    assert all_integers(in_the_middle(residual))
    assert error(in_the_middle(residual)) < SOUND


#: Averages, and the error of the old stack, which cut them off. Ours are read by a convolution.
AVERAGES = {
    "global": (relay.nn.global_avg_pool2d, SOUND),
    "window": (lambda y: relay.nn.avg_pool2d(y, (3, 3), padding=(1, 1)), 0.07),
    "padded": (
        lambda y: relay.nn.avg_pool2d(y, (3, 3), padding=(1, 1), count_include_pad=True),
        0.09,
    ),
}


@pytest.mark.parametrize("pool", AVERAGES)
def test_an_average_is_rounded_not_cut_off(pool):
    average, before = AVERAGES[pool]
    y = in_the_middle(lambda _net, y: average(relay.nn.relu(y)))
    assert all_integers(y)[-1] == "tvm_quant.requantize"
    assert error(y) < before / 2


def test_the_white_list_of_operators_works_in_relays_spelling():
    net, x = Net(), data(1, 4, 8, 8)
    y = relay.nn.batch_flatten(relay.nn.relu(net.conv(x, 4, 4)))
    y = relay.nn.dense(y, net.weight(3, 256))
    chosen = {"skip_dense_layer": False, "debug_enabled_ops": ["nn.dense"]}
    assert layers(quantized(y, **chosen)) == ["matmul"]
    assert layers(quantized(y, skip_dense_layer=False, debug_enabled_ops=[])) == []


@pytest.mark.parametrize("computed", [False, True], ids=["input", "computed"])
def test_a_weight_that_is_no_constant_leaves_its_layer_in_float_and_says_so(computed):
    x, w = data(1, 4, 8, 8), data(4, 4, 3, 3, name="w")
    y = relay.nn.conv2d(x, relay.nn.relu(w) if computed else w, padding=(1, 1))
    y = relay.nn.relu(Net().conv(y, 4, 4))
    mod = quantized(y)
    assert (layers(mod, "float32"), layers(mod)) == (["nn.conv2d"], ["nn.conv2d"])
    assert "the kernel is computed at run time" in float_reasons(mod["main"]).values()
    assert error(y) < SOUND


def test_data_sets_that_are_no_use_are_refused_by_name():
    mod = relay.to_relax(Net().conv(data(1, 4, 8, 8), 4, 4))
    with relay.quantize.qconfig(calibrate_mode="kl_divergence", skip_conv_layers=[]):
        with pytest.raises(ConfigError, match="needs a dataset"):
            relay.quantize.quantize(mod)
        with pytest.raises(DatasetError, match="no"):
            relay.quantize.quantize(mod, None, [])
        with pytest.raises(DatasetError, match="x"):
            relay.quantize.quantize(mod, None, [{"y": np.ones((1, 4, 8, 8), "float32")}])
        more = {**samples(mod, 1)[0], "unused": np.ones(3, "float32")}
        with pytest.raises(DatasetError, match="unknown name 'unused'"):
            relay.quantize.quantize(mod, None, [more])


def test_a_generator_calibrates_as_a_list_does_in_chunks_or_not():
    mod = relay.to_relax(Net().conv(data(1, 4, 8, 8), 4, 4))
    batches = samples(mod)
    results = []
    for dataset, chunk in ((batches, -1), (iter(batches), 2)):
        settings = {"calibrate_chunk_by": chunk, "skip_conv_layers": []}
        with relay.quantize.qconfig(calibrate_mode="percentile", **settings):
            results.append(relay.quantize.quantize(mod, None, dataset))
    tvm.ir.assert_structural_equal(*results)


def test_pooling_does_not_end_quantization():
    net, x = Net(), data(1, 4, 16, 16)
    pooled = relay.nn.global_avg_pool2d(relay.nn.relu(net.conv(x, 4, 8)))
    y = relay.nn.relu(net.conv(pooled, 8, 8, k=1))
    y = relay.nn.dense(relay.nn.batch_flatten(y), net.weight(3, 8))
    mod = quantized(y, skip_dense_layer=False)
    assert layers(mod) == ["nn.conv2d", "nn.conv2d", "matmul"]


@pytest.mark.parametrize(
    "settings",
    [
        {"dtype_activation": "int16"},
        {"nbit_activation": 16},
        {"dtype_input": "int4"},
        {"dtype_activation": "float32"},
        {"nbit_input": 0},
    ],
)
def test_what_cannot_be_built_is_refused_up_front(settings):
    with pytest.raises(ConfigError), relay.quantize.qconfig(**settings):
        pass


@pytest.mark.parametrize("settings", [{"dtype_input": "int16"}, {"nbit_input": 16}])
def test_activations_of_16_bits_lose_less_than_those_of_8(settings):
    y = in_the_middle(lambda _net, y: relay.nn.relu(y))
    mod = quantized(y, "global_scale", **settings)
    assert operators(mod, "int16")[-1] == "tvm_quant.requantize"
    assert 2 * error(y, mode="global_scale", **settings) < error(y, mode="global_scale")


def test_a_network_without_a_layer_to_quantize_stays_as_it_is():
    x = data(2, 8)
    y = relay.nn.dense(x, Net().weight(3, 8))
    mod = relay.to_relax(y)
    feed = samples(mod, 1)[0]
    with relay.quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
        result = relay.quantize.quantize(mod, None, samples(mod))
    assert layers(result, "float32") == ["matmul"]
    assert relative(outputs(mod, feed), outputs(result, feed)) < 1e-6


def test_depthwise_channels_of_very_different_scale_are_all_sound():
    x = data(1, 8, 8, 8)
    scale = np.logspace(-2, 0, 8).reshape(8, 1, 1, 1)
    weight = relay.const((np.random.RandomState(0).randn(8, 1, 3, 3) * scale).astype("float32"))
    y = relay.nn.conv2d(x, weight, padding=(1, 1), groups=8)
    mod = relay.to_relax(y)
    feed = samples(mod, 1)[0]
    (wanted,), (got,) = outputs(mod, feed), outputs(quantized(y), feed)
    spread = [relative([w], [g]) for w, g in zip(wanted[0], got[0], strict=True)]
    assert max(spread) < 0.03


def test_a_shared_tensor_is_stored_once():
    net, x = Net(), data(1, 4, 8, 8)
    y = relay.nn.relu(net.conv(x, 4, 4))
    mod = quantized(net.conv(y, 4, 4) + net.conv(y, 4, 4))
    readers = [layer for layer in layers(mod) if layer == "nn.conv2d"]
    assert len(readers) == 3
    convolutions = [
        binding.value.args[0]
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if getattr(getattr(binding.value, "op", None), "name", "") == "relax.nn.conv2d"
    ]
    assert convolutions[1].same_as(convolutions[2])


def test_no_pass_changes_the_module_that_it_is_given():
    net, x = Net(), data(1, 4, 8, 8)
    y = relay.nn.conv2d(x, relay.var("w", shape=(4, 4, 3, 3)), padding=(1, 1))
    mod = relay.to_relax(relay.Function((x, *relay.analysis.free_vars(y)[1:]), y))
    before = tvm.ir.load_json(tvm.ir.save_json(mod))
    params = {"w": net.weight(4, 4, 3, 3).data}
    relay.quantize.prerequisite_optimize(mod, params)
    relay.quantize.quantize(mod, params)
    relay.build(mod, "llvm", params=params)
    for name in relay.transform.PASSES:
        if name != "ConvertLayout":
            getattr(relay.transform, name)()(mod)
    tvm.ir.assert_structural_equal(mod, before)


def test_the_stages_by_hand_are_the_whole():
    net, x = Net(), data(1, 4, 8, 8)
    mod = relay.to_relax(relay.nn.relu(net.conv(relay.nn.relu(net.conv(x, 4, 4)), 4, 4)))
    batches = samples(mod)
    with relay.quantize.qconfig(calibrate_mode="percentile", skip_conv_layers=[]):
        whole = relay.quantize.quantize(mod, None, batches)
        stages = [
            relay.quantize.partition(),
            relay.quantize.annotate(),
            relay.quantize.calibrate(batches),
            relay.quantize.realize(),
        ]
        with tvm.transform.PassContext(opt_level=3):
            prepared = relay.quantize.prerequisite_optimize(mod)
            by_hand = tvm.transform.Sequential(stages)(prepared)
    tvm.ir.assert_structural_equal(by_hand, whole)


@pytest.mark.parametrize("mode", ["global_scale", "kl_divergence"])
@pytest.mark.parametrize("form", ["wrapper", "tuple"])
def test_a_concatenation_takes_a_tuple_that_is_computed(form, mode):
    y = Net().conv(data(1, 4, 8, 8), 4, 4)
    halves = relay.split(y, 2, axis=1)
    joined = relay.concatenate(halves if form == "wrapper" else halves.astuple(), axis=1)
    assert layers(quantized(joined)) == ["nn.conv2d"]
    assert error(joined) < SOUND
    y = Net(1).conv(joined, 4, 4)
    assert all_integers(y, mode)[-1] == "concat"
    assert error(y, mode=mode) < SOUND


def test_a_concatenation_with_an_input_in_float_is_sound():
    y = in_the_middle(lambda _net, y: relay.concatenate([y, data(1, 4, 8, 8, name="z")], 1), 8)
    assert all_integers(y)[-1] == "concat"
    assert error(y) < SOUND


def test_a_clip_beyond_the_grid_leaves_the_grid_as_it_is():
    y = in_the_middle(lambda _net, y: relay.clip(y, -1e6, 1e6))
    assert all_integers(y) == ["tvm_quant.requantize"]
    assert error(y) == error(in_the_middle(lambda _net, y: y)) < SOUND


@pytest.mark.parametrize("mode", ["global_scale", "percentile"])
def test_a_network_in_half_precision_stays_as_it_is_and_says_so(mode):
    weight = relay.const((np.random.RandomState(0).randn(4, 4, 3, 3) / 5).astype("float16"))
    x = relay.var("x", shape=(1, 4, 8, 8), dtype="float16")
    mod = relay.to_relax(relay.nn.relu(relay.nn.conv2d(x, weight, padding=(1, 1))))
    feed = {"x": np.random.RandomState(1).randn(1, 4, 8, 8).astype("float16")}
    says = pytest.warns(NothingQuantizedWarning)
    with relay.quantize.qconfig(calibrate_mode=mode, skip_conv_layers=[]), says:
        result = relay.quantize.quantize(mod, None, [feed])
    assert layers(result, "float16") == ["nn.conv2d"]
    np.testing.assert_array_equal(outputs(result, feed)[0], outputs(mod, feed)[0])


def test_a_batch_of_any_size_calibrates_and_runs():
    y = relay.nn.relu(Net().conv(relay.var("x", shape=(relay.Any(), 4, 8, 8)), 4, 4))
    mod = relay.to_relax(y)
    draw = np.random.RandomState(0)
    batches = [{"x": draw.randn(count, 4, 8, 8).astype("float32")} for count in (2, 2, 1)]
    with relay.quantize.qconfig(calibrate_mode="kl_divergence", skip_conv_layers=[]):
        result = relay.quantize.quantize(mod, None, batches)
    assert layers(result) == ["nn.conv2d"]
    for feed in batches:
        assert relative(outputs(mod, feed), outputs(result, feed)) < SOUND


@pytest.mark.parametrize("mode", ["global_scale", "kl_divergence"])
def test_what_is_quantized_already_comes_back_as_it_is(mode):
    net = Net()
    once = quantized(net.conv(relay.nn.relu(net.conv(data(1, 4, 8, 8), 4, 4)), 4, 4))
    feed = samples(once, 1, seed=2)[0]
    says = pytest.warns(NothingQuantizedWarning)
    with relay.quantize.qconfig(calibrate_mode=mode, skip_conv_layers=[]), says:
        twice = relay.quantize.quantize(once, None, samples(once))
    assert layers(twice) == layers(once) == ["nn.conv2d", "nn.conv2d"]
    np.testing.assert_array_equal(outputs(twice, feed)[0], outputs(once, feed)[0])


#: Small activations and the error of the old stack, which took them to be within +-8.
SMALL = {
    "mean": (relay.nn.global_avg_pool2d, 0.30),
    "adaptive": (lambda y: relay.nn.adaptive_avg_pool2d(y, (2, 2)), 0.24),
}


@pytest.mark.parametrize("pool", SMALL)
def test_small_activations_lose_less_than_before_and_are_sound_once_calibrated(pool):
    reduce, before = SMALL[pool]
    net = Net()
    y = net.conv(reduce(net.conv(data(1, 4, 16, 16), 4, 32)), 32, 32, k=1)
    assert error(y, mode="global_scale") < before
    assert error(y, mode="percentile") < SOUND / 2


def kernels_of_all_kinds() -> relay.Call:
    """Odd channels, groups, depthwise, one output channel, dense."""
    net, x = Net(), data(1, 3, 9, 7)
    y = relay.nn.relu(net.conv(x, 3, 10))
    y = net.conv(y, 10, 10, groups=10) + net.conv(y, 10, 10, groups=2, k=1)
    pooled = relay.nn.avg_pool2d(relay.nn.max_pool2d(y, (2, 2), (2, 2)), (3, 3), padding=(1, 1))
    dense = relay.nn.dense(relay.nn.batch_flatten(relay.sigmoid(pooled)), net.weight(7, 120))
    return relay.Tuple((net.conv(y, 10, 1), dense))


#: A CPU of each row of `ISAS`, and what this one needs to run its code.
CPUS = {
    "x86-64": ("sse2",),
    "haswell": ("avx2", "fma", "bmi2", "movbe"),
    "skylake-avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "cascadelake": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"),
}


@pytest.mark.parametrize("hardware", ["generic", "x86_vnni", "x86_avx2"])
@pytest.mark.parametrize(
    "cpu",
    [pytest.param(cpu, marks=pytest.mark.isa(*features)) for cpu, features in CPUS.items()],
)
def test_kernels_for_every_cpu_give_the_bits_of_the_plain_build(cpu, hardware):
    mod = quantized(kernels_of_all_kinds(), skip_dense_layer=False, hardware=hardware)
    assert layers(mod, "float32") == []
    feed = samples(mod, 1, seed=4)[0]
    runner = graph_executor.GraphModule(relay.build(mod, f"llvm -mcpu={cpu}")["default"](tvm.cpu()))
    runner.run(**feed)
    for index, want in enumerate(plain_tvm.run(mod, feed["x"])):
        np.testing.assert_array_equal(runner.get_output(index).numpy(), want)
