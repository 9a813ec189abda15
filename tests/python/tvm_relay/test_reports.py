"""What users of the old stack reported, on networks as small as show it."""

import numpy as np
import pytest
import tvm

import plain_tvm
import tvm_relay as relay
from tvm_quant.ir import bindings, op_name
from tvm_quant.ir.reasons import float_reasons
from tvm_quant.op import is_requantize, is_simulated
from tvm_relay_networks import Net, data, error, layers, operators, outputs, quantized, samples

SOUND = 0.06


def image(name: str = "x") -> relay.Var:
    return data(1, 4, 8, 8, name=name)


def requantizes(mod: tvm.IRModule) -> int:
    return sum(is_requantize(binding.value) for binding in bindings(mod["main"]))


def test_a_scaled_pool_beside_a_tensor_in_float_is_quantized():
    net = Net()
    pooled = relay.nn.max_pool2d(net.conv(image(), 4, 4), (2, 2), (2, 2))
    scale = relay.const(np.linspace(0.5, 2, 4).reshape(4, 1, 1).astype("float32"))
    joined = relay.concatenate([net.conv(pooled * scale, 4, 4), data(1, 4, 4, 4, name="z")], 1)
    y = net.conv(joined, 8, 4)
    assert layers(quantized(y)) == ["nn.conv2d"] * 3
    assert error(y) < SOUND


def test_a_tensor_with_two_readers_has_one_quantizer():
    net, x = Net(), image()
    mod = quantized(net.conv(x, 4, 4, k=1) + net.conv(x, 4, 4, k=1), do_simulation=True)
    read = [b.value.args[0] for b in bindings(mod["main"]) if is_simulated(b.value)]
    assert sum(arg.same_as(mod["main"].params[0]) for arg in read) == 1


@pytest.mark.parametrize("mode", ["global_scale", "kl_divergence"])
def test_a_pool_between_layers_keeps_the_scale_it_gets(mode):
    net = Net()
    pooled = relay.nn.max_pool2d(net.conv(image(), 4, 4), (2, 2), (2, 2))
    mod = quantized(net.conv(pooled, 4, 4), mode)
    assert requantizes(mod) == 1
    assert operators(mod, "int8")[-1] == "nn.max_pool2d"


@pytest.mark.parametrize("weight_scale", ["max", "power2"])
def test_between_two_layers_there_is_one_requantize_and_nothing_in_float(weight_scale):
    net = Net()
    y = net.conv(relay.nn.relu(net.conv(image(), 4, 4)), 4, 4)
    mod = quantized(y, weight_scale=weight_scale, partition_conversions="fully_integral")
    main = tvm.IRModule({"main": mod["quantized_main"]})
    assert requantizes(main) == 1
    assert operators(main, "float32") == []
    assert error(y, weight_scale=weight_scale) < SOUND


def test_a_residual_sum_between_layers_is_an_integer_one():
    net = Net()
    y = relay.nn.relu(net.conv(image(), 4, 4))
    y = net.conv(relay.nn.relu(net.conv(y, 4, 4) + y), 4, 4)
    mod = quantized(y, partition_conversions="fully_integral")
    assert operators(tvm.IRModule({"main": mod["quantized_main"]}), "float32") == []
    assert error(y) < SOUND


def test_a_convolution_and_what_normalizes_it_end_in_one_requantize():
    net = Net()
    statistics = [relay.const((net.rng.rand(4) + 0.5).astype("float32")) for _ in range(4)]
    block = relay.nn.relu(relay.nn.batch_norm(net.conv(image(), 4, 4), *statistics)[0])
    mod = quantized(net.conv(block, 4, 4))
    assert requantizes(mod) == 1
    assert operators(mod, "int8")[-1] == "tvm_quant.requantize"


def test_integers_pass_from_a_pool_through_a_flattening_to_a_dense_layer():
    net = Net()
    pooled = relay.nn.max_pool2d(relay.nn.relu(net.conv(image(), 4, 4)), (2, 2), (2, 2))
    y = relay.nn.dense(relay.nn.batch_flatten(pooled), net.weight(3, 64))
    mod = quantized(y, skip_dense_layer=False)
    assert operators(mod, "int8")[-2:] == ["nn.max_pool2d", "reshape"]
    assert layers(mod) == ["nn.conv2d", "matmul"]


def test_a_gate_on_the_left_of_what_it_gates_is_quantized():
    net = Net()
    y = net.conv(image(), 4, 4)
    y = net.conv(relay.sigmoid(y) * y, 4, 4)
    mod = quantized(y, partition_conversions="fully_integral")
    assert operators(tvm.IRModule({"main": mod["quantized_main"]}), "float32") == []
    assert error(y) < SOUND


def test_attention_is_made_of_integer_products():
    net, x = Net(), data(16, 32)

    def heads() -> relay.Call:
        flat = relay.nn.dense(x, net.weight(32, 32))
        return relay.transpose(relay.reshape(flat, (16, 4, 8)), (1, 0, 2))

    scores = relay.nn.softmax(relay.nn.batch_matmul(heads(), heads()) * 8**-0.5)
    mixed = relay.nn.batch_matmul(scores, relay.transpose(heads(), (0, 2, 1)))
    y = relay.reshape(relay.transpose(mixed, (1, 0, 2)), (16, 32))
    y = relay.nn.dense(y, net.weight(32, 32)) + x
    options = {"mode": "percentile", "skip_dense_layer": False}
    assert layers(quantized(y, **options)) == ["matmul"] * 6
    assert error(y, **options) < SOUND


def test_functions_that_main_does_not_call_stay_as_they_are():
    mod = relay.to_relax(Net().conv(image(), 4, 4))
    other = relay.to_relax(relay.nn.relu(data(1, 2)))["main"].with_attr("global_symbol", "other")
    mod["other"] = other
    with relay.quantize.qconfig(skip_conv_layers=[]):
        result = relay.quantize.quantize(mod)
    assert layers(result) == ["nn.conv2d"]
    tvm.ir.assert_structural_equal(result["other"], other)


def test_what_a_called_function_computes_is_quantized():
    a = image("a")
    bias = relay.const(np.ones(4, "float32"))
    block = relay.Function([a], relay.nn.bias_add(Net().conv(a, 4, 4), bias))
    assert layers(quantized(relay.Call(block, [image()]))) == ["nn.conv2d"]


def test_types_can_be_inferred_again_with_quantizers_in_place():
    mod = relay.quantize.prerequisite_optimize(relay.to_relax(Net().conv(image(), 4, 4)))
    with relay.quantize.qconfig(skip_conv_layers=[]):
        mod = relay.quantize.annotate()(mod)
    assert any(is_simulated(binding.value) for binding in bindings(mod["main"]))
    again = tvm.transform.Sequential([relay.transform.InferType()] * 2)(mod)
    tvm.ir.assert_structural_equal(again, mod)


def test_a_convolution_that_is_skipped_says_why():
    net = Net()
    y = relay.nn.relu(net.conv(data(1, 3, 16, 16), 3, 8, k=7, strides=(2, 2)))
    y = relay.nn.relu(net.conv(relay.nn.max_pool2d(y, (2, 2), (2, 2)), 8, 8))
    mod = relay.quantize.quantize(relay.to_relax(relay.nn.adaptive_avg_pool2d(y, (1, 1))))
    assert (layers(mod), layers(mod, "float32")) == (["nn.conv2d"], ["nn.conv2d"])
    skipped = next(b.var for b in bindings(mod["main"]) if op_name(b.value) == "relax.nn.conv2d")
    assert float_reasons(mod["main"])[str(skipped.name)] == "left in float by skip_conv_layers"


@pytest.mark.parametrize("level", [0, 3])
def test_channels_that_fill_no_vector_are_quantized_at_every_level(level):
    net = Net()
    mod = quantized(net.conv(relay.nn.relu(net.conv(data(1, 3, 9, 7), 3, 126)), 126, 1))
    assert layers(mod) == ["nn.conv2d"] * 2
    feed = samples(mod, 1)[0]
    with tvm.transform.PassContext(opt_level=level):
        (got,) = outputs(mod, feed)
    np.testing.assert_array_equal(got, plain_tvm.run(mod, feed["x"])[0])
