import numpy as np
import pytest
import tvm
from tvm import relax

from small_networks import calibrated_network, samples
from tvm_quant.errors import UnsupportedError
from tvm_quant.ir import tapped


def run(mod, x):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return [output.numpy() for output in machine["main"](tvm.runtime.tensor(x))]


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


def test_a_parameter_can_be_among_the_results():
    x = samples(2)
    conv, given = run(tapped(calibrated_network(quantized=False), ["conv", "x"]), x)
    assert conv.shape == (2, 5, 4, 4)
    np.testing.assert_array_equal(given, x)
