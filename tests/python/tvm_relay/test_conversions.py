"""`partition_conversions`: three functions for a host and a device, and the same results."""

import numpy as np
import pytest
import tvm
from hypothesis import given, settings

import tvm_relay as relay
from random_networks import RandomNetwork, random_networks
from tvm_quant.errors import ConfigError
from tvm_relay import graph_executor
from tvm_relay_networks import Net, data, operators, outputs, quantized, samples

PARTS = ["dequantize_outputs", "main", "quantize_inputs", "quantized_main"]
MODES = ("disabled", "enabled", "fully_integral")


def names(mod):
    return sorted(gvar.name_hint for gvar in mod.get_global_vars())


def split(expr, mode="enabled", **options):
    return quantized(expr, "global_scale", partition_conversions=mode, **options)


def agree(expr, *modes, **options):
    """The results under every mode are those of `disabled`, to the bit."""
    whole = split(expr, "disabled", **options)
    feed = samples(whole, 1, seed=3)[0]
    want = outputs(whole, feed)
    for mode in modes:
        mod = split(expr, mode, **options)
        assert names(mod) == PARTS
        for got, array in zip(outputs(mod, feed), want, strict=True):
            np.testing.assert_array_equal(got, array)
    return whole


def layer(net, x):
    return net.conv(x, 4, 4)


def image(name="x"):
    return data(1, 4, 16, 16, name=name)


def test_a_sum_of_inputs_is_split_but_not_integral():
    agree(data(10, 10) + data(10, 10, name="y"), "enabled")
    with pytest.raises(ConfigError, match=r"relax\.add .* dtype=\"float32\""):
        split(data(10, 10) + data(10, 10, name="y"), "fully_integral")


def test_a_convolution_is_integral_between_its_conversions():
    expr = layer(Net(), image())
    assert names(agree(expr, *MODES[1:])) == ["main"]
    mod = split(expr, "fully_integral")
    assert str(mod["quantized_main"].params[0].ty.dtype) == "int8"
    assert {str(field.dtype) for field in mod["quantized_main"].ret_ty.fields} == {"int32"}


def test_two_inputs_become_two_tensors_of_integers():
    net = Net()
    expr = layer(net, image()) + layer(net, image("y"))
    agree(expr, *MODES[1:])
    given = split(expr, "fully_integral")["quantize_inputs"].ret_ty
    assert [str(field.dtype) for field in given.fields] == ["int8", "int8"]


@pytest.mark.parametrize("place", ["before", "between", "behind"])
def test_a_bias_is_no_obstacle_wherever_it_is(place):
    net, bias = Net(), relay.const(np.linspace(-1, 1, 4).astype("float32"))
    x = relay.nn.bias_add(image(), bias) if place == "before" else image()
    y = layer(net, x)
    y = y if place == "before" else relay.nn.bias_add(y, bias)
    agree(layer(net, y) if place == "between" else y, *MODES[1:])


@pytest.mark.parametrize(
    ("expr", "operator"),
    [
        (lambda net: layer(net, relay.exp(image())), "relax.exp"),
        (lambda net: layer(net, relay.nn.softmax(layer(net, image()))), "relax.nn.softmax"),
        (lambda net: relay.nn.softmax(layer(net, image())), "relax.nn.softmax"),
    ],
    ids=["before", "between", "behind"],
)
def test_an_operator_without_integers_is_refused_by_name_and_stays_in_the_middle(expr, operator):
    agree(expr(Net()), "enabled")
    middle = tvm.IRModule({"main": split(expr(Net()))["quantized_main"]})
    assert operator.removeprefix("relax.") in operators(middle, "float32")
    with pytest.raises(ConfigError, match=rf"{operator} .* dtype=\"float32\""):
        split(expr(Net()), "fully_integral")


def test_outputs_may_be_a_tuple():
    net = Net()
    y = relay.nn.relu(layer(net, image()))
    agree(relay.Tuple((y, layer(net, y))), *MODES[1:])


def test_an_input_may_have_several_readers_or_none_that_is_quantized():
    net, x = Net(), image()
    agree(layer(net, x) + layer(net, x), *MODES[1:])
    agree(relay.Tuple((layer(net, x), relay.exp(x), relay.exp(image("y")))), "enabled")


def test_a_network_with_nothing_quantized_is_split():
    agree(relay.nn.dense(data(2, 8), Net().weight(3, 8)), "enabled")


def test_the_split_is_built_run_and_quantized_again_as_a_whole():
    net = Net()
    expr = layer(net, relay.nn.relu(layer(net, image())))
    mod = split(expr, "fully_integral")
    feed = samples(mod, 1)[0]
    (want,) = outputs(split(expr, "disabled"), feed)
    runner = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    runner.run(**feed)
    np.testing.assert_array_equal(runner.get_output(0).numpy(), want)
    got = relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()(feed["x"])
    np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(outputs(relay.quantize.quantize(mod), feed)[0], want)


def test_the_stages_by_hand_are_split_too():
    expr = layer(Net(), image())
    with relay.quantize.qconfig(partition_conversions="enabled", skip_conv_layers=[]):
        whole = relay.quantize.quantize(expr)
        stages = [
            relay.quantize.annotate(),
            relay.quantize.calibrate(),
            relay.quantize.realize(),
        ]
        prepared = relay.quantize.prerequisite_optimize(expr)
        tvm.ir.assert_structural_equal(tvm.transform.Sequential(stages)(prepared), whole)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partition_conversions": "on"}, "partition_conversions is 'on'; expected one of"),
        (
            {"partition_conversions": "fully_integral", "do_simulation": True},
            "do_simulation=True stops before integers",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(settings, message):
    with pytest.raises(ConfigError, match=message), relay.quantize.qconfig(**settings):
        pass


def test_a_simulation_is_split_with_nothing_to_convert():
    mod = split(layer(Net(), image()), do_simulation=True)
    assert [str(param.ty.dtype) for param in mod["quantized_main"].params] == ["float32"]


def in_mode(mod, mode):
    with relay.quantize.qconfig(partition_conversions=mode, skip_conv_layers=[]):
        return relay.quantize.quantize(mod)


@given(network=random_networks(max_steps=5))
@settings(max_examples=8, deadline=None)
def test_a_random_network_gives_the_same_bits_in_every_mode(network: RandomNetwork):
    keys = [str(param.name) for param in network.mod["main"].params]
    feed = dict(zip(keys, network.inputs, strict=True))
    done = {mode: in_mode(network.mod, mode) for mode in MODES[:2]}
    middle = tvm.IRModule({"main": done["enabled"]["quantized_main"]})
    floats = [param for param in middle["main"].params if "float" in str(param.ty.dtype)]
    if floats or operators(middle, "float32"):
        with pytest.raises(ConfigError, match="float32"):
            in_mode(network.mod, "fully_integral")
    else:
        done["fully_integral"] = in_mode(network.mod, "fully_integral")
    want = outputs(done["disabled"], feed)
    for mod in done.values():
        for got, array in zip(outputs(mod, feed), want, strict=True):
            np.testing.assert_array_equal(got, array)
