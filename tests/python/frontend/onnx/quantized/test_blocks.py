"""MatMulNBits."""

import numpy as np
import pytest
from onnx import helper

from onnx_models import operators
from quantized_models import onnxruntime_unoptimized, realized, simulated, typed_model
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load

RNG = np.random.default_rng(0)


def product(bits, block, *, zero_points, bias=False, depth=64, columns=6):
    blocks = -(-depth // block)
    weights = {
        "b": RNG.integers(0, 256, (columns, blocks, block * bits // 8)).astype("uint8"),
        "s": RNG.uniform(0.01, 0.1, columns * blocks).astype("float32"),
        "z": RNG.integers(0, 256, columns * -(-blocks * bits // 8)).astype("uint8"),
        "c": RNG.normal(size=columns).astype("float32"),
    }
    inputs = ["a", "b", "s", "z" if zero_points else "", "", "c" if bias else ""]
    while not inputs[-1]:
        inputs.pop()
    known = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": 1}
    call = helper.make_node(
        "MatMulNBits", inputs, ["y"], name="head", domain="com.microsoft", **known
    )
    used = {name: weights[name] for name in inputs if name in weights}
    return typed_model([call], {"a": ("float", (3, depth))}, used, {"y": "float"})


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize("zero_points", [False, True])
def test_products_are_those_of_onnx_runtime(bits, block, zero_points):
    source = product(bits, block, zero_points=zero_points, bias=zero_points)
    a = RNG.normal(size=(3, 64)).astype("float32")
    (expected,) = onnxruntime_unoptimized(source, a=a)
    for got in (simulated(source, a=a)[0], realized(source, a=a)[0]):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_one_block_for_each_column_is_a_quantized_weight_and_many_have_a_reason():
    whole, _ = load(product(4, 64, zero_points=True))
    assert "tvm_quant.simulated_quantize" in operators(whole)
    many, _ = load(product(4, 16, zero_points=True))
    assert "in blocks" in many["main"].attrs["tvm_quant.float_reasons"]["head"]


def test_a_width_that_nobody_packs_is_refused():
    source = product(4, 16, zero_points=False)
    (bits,) = [a for a in source.graph.node[0].attribute if a.name == "bits"]
    bits.i = 3
    with pytest.raises(FrontendError, match=r"'head' \(MatMulNBits.*3 bits; expected 2, 4 or 8"):
        load(source)
