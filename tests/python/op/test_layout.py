"""`ConvertLayout` goes through the operators of ours that act on each value alone."""

import numpy as np
import pytest
from tvm import relax

import plain_tvm
from tvm_quant.ir import bindings, constant, op_name
from tvm_quant.op import Kind, QuantSpec, RequantizeMode, requantize, simulated_quantize

TO_LAST = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})
IMAGE, CHANNELS = (1, 4, 8, 8), (1, 6, 1, 1)
FACTORS = 0.5 ** np.arange(3, 9).reshape(CHANNELS)
BOUNDS = {"dtype": "int8", "qmin": -127, "qmax": 127}


def between_convolutions(operator, dtype, out_dtype):
    draw = np.random.default_rng(0)

    def convolve(x, outputs, inputs):
        kernel = constant(draw.integers(-9, 10, (outputs, inputs, 3, 3)).astype(dtype))
        return relax.op.nn.conv2d(x, kernel, padding=1, out_dtype=out_dtype)

    def body(b, x):
        return convolve(b.emit(operator(b.emit(convolve(x, 6, 4)))), 4, 6)

    return plain_tvm.build(body, x=(dtype, *IMAGE))


def transposed_images(mod):
    """Transposes that are not of constants."""
    moves = [b.value for b in bindings(mod["main"]) if op_name(b.value) == "relax.permute_dims"]
    return sum(isinstance(call.args[0], relax.Var) for call in moves)


def check(mod, dtype, *, goes_through):
    converted = TO_LAST(mod)
    assert transposed_images(converted) == (2 if goes_through else 4)
    x = np.random.default_rng(1).integers(-127, 128, IMAGE).astype(dtype)
    np.testing.assert_array_equal(plain_tvm.run_one(converted, x), plain_tvm.run_one(mod, x))


@pytest.mark.parametrize(
    ("factor", "zero_point", "mode", "goes_through"),
    [
        (2.0**-6, 3, RequantizeMode.FLOAT, True),
        (FACTORS, 3, RequantizeMode.FLOAT, True),
        (2.0**-6, 3, RequantizeMode.FIXED_POINT, True),
        (FACTORS, 3, RequantizeMode.FIXED_POINT, False),
        (FACTORS, 3, RequantizeMode.SHIFT, False),
        (FACTORS, np.arange(6).reshape(CHANNELS), RequantizeMode.FLOAT, False),
    ],
)
def test_requantized_images_are_the_same_in_another_layout(factor, zero_point, mode, goes_through):
    mod = between_convolutions(
        lambda y: requantize(y, factor, zero_point, mode=mode, **BOUNDS), "int8", "int32"
    )
    check(mod, "int8", goes_through=goes_through)


@pytest.mark.parametrize(
    ("scale", "axis", "goes_through"),
    [(None, None, True), (4.0, None, True), (1 / FACTORS, 1, False)],
)
def test_rounded_images_are_the_same_in_another_layout(scale, axis, goes_through):
    spec = QuantSpec(bits=8, signed=True, symmetric=True, axis=axis)
    mod = between_convolutions(
        lambda y: simulated_quantize(y, scale, spec=spec, kind=Kind.INPUT), "float32", "float32"
    )
    check(mod, "float32", goes_through=goes_through)
