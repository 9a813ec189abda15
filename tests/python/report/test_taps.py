"""Looking inside a module."""

import numpy as np
import pytest
import tvm
from tvm import relax

from small_networks import calibrated_network, samples
from tvm_quant.errors import UnsupportedError
from tvm_quant.report import layer_variables, tapped


def run(mod, x):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return [output.numpy() for output in machine["main"](tvm.runtime.tensor(x))]


def test_layers_are_named_as_the_user_knows_them():
    assert layer_variables(calibrated_network()) == {"stem.conv": "conv"}


def test_tapped_returns_the_chosen_values():
    mod = calibrated_network(quantized=False)
    x = samples(2)
    conv, relu = run(tapped(mod, ["conv", "relu"]), x)
    assert conv.shape == (2, 5, 4, 4)
    np.testing.assert_array_equal(relu, np.maximum(conv, 0))


def test_tapped_drops_what_nobody_needs():
    text = tapped(calibrated_network(), ["conv"]).script(show_meta=False)
    assert "nn.conv2d" in text
    assert "nn.softmax" not in text


def test_tapped_leaves_the_module_alone():
    mod = calibrated_network()
    tapped(mod, ["conv"])
    tvm.ir.assert_structural_equal(mod, calibrated_network())


def test_an_unknown_variable_is_refused():
    with pytest.raises(UnsupportedError, match="the module has no variable 'pool'"):
        tapped(calibrated_network(), ["conv", "pool"])


def test_a_product_and_its_bias_are_one_layer_under_the_name_of_the_product():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(
                relax.op.matmul(x, relax.const(np.eye(3, dtype="float32"))), "fc"
            )
            bias = builder.emit(relax.op.add(product, relax.const(np.ones(3, "float32"))), "bias")
            out = builder.emit_output(builder.normalize(relax.op.add(bias, x)), "total")
        builder.emit_func_output(out)
    assert layer_variables(builder.get()) == {"fc": "bias", "total": "total"}
