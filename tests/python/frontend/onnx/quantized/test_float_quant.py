"""QONNX FloatQuant: small floating-point grids."""

import numpy as np
import pytest

from onnx_models import model, node
from qonnx_oracle import oracle_results
from quantized_models import custom, simulated
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, op_name

NAMES = ["s", "e", "m", "bias", "largest"]
E4M3 = dict(zip(NAMES, np.float32([1, 4, 3, 7, 448]), strict=True))
E2M1 = dict(zip(NAMES, np.float32([1, 2, 1, 1, 6]), strict=True))
DEFAULT = {
    "has_inf": 0,
    "has_nan": 1,
    "has_subnormal": 1,
    "saturation": 1,
    "rounding_mode": "round",
}


def quantizer(x, parameters, **attributes):
    call = custom("FloatQuant", ["x", *NAMES], **(DEFAULT | attributes))
    return model([call], {"x": x.shape}, parameters)


@pytest.mark.parametrize(
    ("parameters", "x", "expected"),
    [
        (
            E4M3,
            [1, 1.0625, 1.1875, 2**-10, 0.001, 0.0029, 17, -17.5, 250, 464, 1e6],
            [1, 1, 1.25, 0, 0.001953125, 0.001953125, 16, -18, 256, 448, 448],
        ),
        (
            E2M1,
            [0.2, 0.25, 0.3, 0.75, 1.25, 2.5, 3.5, 5, 7],
            [0, 0, 0.5, 1, 1, 2, 4, 4, 6],
        ),
    ],
)
def test_values_of_eight_and_four_bits(parameters, x, expected):
    x = np.float32(x)
    assert simulated(quantizer(x, parameters), x=x)[0].tolist() == expected
    weights = {"w": x, **parameters}
    nodes = [custom("FloatQuant", ["w", *NAMES], "q", **DEFAULT), node("Add", ["x", "q"])]
    constant = model(nodes, {"x": x.shape}, weights)
    assert simulated(constant, x=np.zeros_like(x))[0].tolist() == expected


@pytest.mark.parametrize("mode", ["ROUND", "floor", "CEIL"])
@pytest.mark.parametrize("beyond", [{}, {"saturation": 0, "has_inf": 1}, {"saturation": 0}])
def test_random_values_near_powers_of_two(mode, beyond):
    powers = 2.0 ** np.arange(-12, 10)
    x = np.float32(
        np.concatenate([powers, np.nextafter(np.float32(powers), np.float32(0)), -powers])
    )
    source = quantizer(x, E4M3 | {"s": np.float32(0.75)}, rounding_mode=mode, **beyond)
    np.testing.assert_array_equal(simulated(source, x=x)[0], oracle_results(source, {"x": x})[0])


def test_a_quantized_constant_is_a_constant():
    weights = {"w": np.ones((3, 2), "float32"), **E4M3}
    nodes = [custom("FloatQuant", ["w", *NAMES], "q", **DEFAULT), node("MatMul", ["x", "q"])]
    mod, _ = load(model(nodes, {"x": (1, 3)}, weights))
    assert [op_name(b.value) for b in bindings(mod["main"]) if op_name(b.value)] == ["relax.matmul"]


def test_widths_beyond_a_float32_are_refused():
    with pytest.raises(FrontendError, match="9 bits of exponent and 3 of mantissa; expected"):
        load(quantizer(np.zeros(3), E4M3 | {"e": np.float32(9)}))
