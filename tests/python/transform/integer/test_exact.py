"""Sums that become codes by real arithmetic, whatever the rounding, sign and size of the scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from plain_tvm import run_one
from realized import realize
from tvm_quant.ir import bindings
from tvm_quant.op import (
    Convention,
    Formula,
    Kind,
    QuantSpec,
    Rounding,
    is_requantize,
    is_threshold,
    simulated_quantize,
)

OP = relax.op
DATA = QuantSpec(bits=4, signed=True)
NEAREST = [Rounding.HALF_EVEN, Rounding.HALF_UP, Rounding.HALF_DOWN, Rounding.HALF_CEIL]


def network(weight, weight_scale, factor, shift, result_scale, zero_point, spec, *, relu):
    """Codes -8..7 times integer weights, times a factor and plus a shift for each channel."""
    columns = QuantSpec(bits=4, narrow=True, axis=1)

    def body(bb, x):
        q = bb.emit(simulated_quantize(x, 1.0, 0, spec=DATA, kind=Kind.INPUT))
        known = relax.const((weight * weight_scale).astype("float32"))
        w = simulated_quantize(known, weight_scale, None, spec=columns, kind=Kind.WEIGHT)
        y = bb.emit(OP.matmul(q, bb.emit(w)))
        y = bb.emit(OP.add(bb.emit(OP.multiply(y, relax.const(factor))), relax.const(shift)))
        if relu:
            y = bb.emit(OP.nn.relu(y))
        call = simulated_quantize(
            y,
            result_scale,
            zero_point,
            spec=spec,
            kind=Kind.ACTIVATION,
            convention=Convention.EXACT,
        )
        grid = relax.const(np.float32(result_scale)), relax.const(zero_point, spec.dtype)
        return bb.emit(OP.quantize(bb.emit(call), *grid, out_dtype=spec.dtype), "codes")

    return body


def real_codes(x, weight, weight_scale, factor, shift, result_scale, zero_point, spec, *, relu):
    """The same in float64, rounded as Python's integers say."""
    acc = (x.astype("int64") @ weight).astype("float64")
    real = acc * weight_scale.astype("float64") * factor.astype("float64") + shift
    real = np.maximum(real, 0) if relu else real
    steps = real / np.float64(result_scale) + (zero_point if spec.formula is Formula.SHIFT else 0)
    after = 0 if spec.formula is Formula.SHIFT else zero_point
    rounded = np.array([[whole(v, spec.rounding) for v in row] for row in steps]) + after
    return np.clip(rounded, spec.qmin, spec.qmax)


def whole(value, rounding):
    floor = np.floor(value)
    fraction, away = value - floor, 1 if value > 0 else 0
    if fraction == 0:
        return floor
    if rounding in NEAREST and fraction != 0.5:
        return floor + (fraction > 0.5)
    return (
        floor
        + {
            Rounding.HALF_EVEN: int(floor) % 2,
            Rounding.HALF_UP: away,
            Rounding.HALF_DOWN: 1 - away,
            Rounding.HALF_CEIL: 1,
            Rounding.UP: away,
            Rounding.DOWN: 1 - away,
            Rounding.CEIL: 1,
            Rounding.FLOOR: 0,
        }[rounding]
    )


@st.composite
def layers(draw):
    depth, channels = draw(st.integers(1, 4)), 3
    integers = st.integers(-7, 7)
    weight = np.array(draw(st.lists(integers, min_size=12, max_size=12)))[: depth * channels]
    scales = st.sampled_from([0.5, 0.125, 2.0]) | st.floats(2**-10, 2, width=32)
    three = {"min_size": channels, "max_size": channels}
    factors = scales | scales.map(lambda v: -v) | st.just(0.0)
    return {
        "weight": weight.reshape(depth, channels),
        "weight_scale": np.float32([draw(st.lists(scales, **three))]),
        "factor": np.float32([draw(st.lists(factors, **three))]),
        "shift": np.float32([draw(st.lists(factors, **three))]),
        "result_scale": np.float32(draw(scales)),
        "relu": draw(st.booleans()),
    }


@st.composite
def grids(draw):
    rounding = draw(st.sampled_from([r for r in Rounding if r is not Rounding.SIGN]))
    signed = draw(st.booleans())
    spec = QuantSpec(
        bits=draw(st.integers(1, 8)),
        signed=signed,
        symmetric=False,
        rounding=rounding,
        formula=draw(st.sampled_from([Formula.DIVIDE, Formula.SHIFT])),
    )
    return spec, draw(st.integers(spec.qmin, spec.qmax))


@settings(max_examples=60)
@given(layer=layers(), grid=grids())
def test_every_sum_gets_the_code_of_its_real_value(layer, grid):
    spec, zero_point = grid
    depth = layer["weight"].shape[0]
    codes = np.arange(-8, 8, dtype="float32")
    x = np.stack(np.meshgrid(*[codes[:: 1 if depth < 3 else 5]] * depth), -1).reshape(-1, depth)
    body = network(**layer, zero_point=zero_point, spec=spec)
    mod = realize(body, x=x.shape)
    expected = real_codes(x, **layer, zero_point=zero_point, spec=spec)
    np.testing.assert_array_equal(run_one(mod, x), expected)


def test_the_sign_of_a_sum():
    spec = QuantSpec(bits=1, low=-1, high=1, rounding=Rounding.SIGN)
    x = np.arange(-8, 8, dtype="float32").reshape(-1, 1)
    layer = {
        "weight": np.array([[1, -3]]),
        "weight_scale": np.float32([[0.3, 0.7]]),
        "factor": np.float32([[1, 1]]),
        "shift": np.float32([[0, -1.5]]),
    }
    mod = realize(
        network(**layer, result_scale=np.float32(2), zero_point=0, spec=spec, relu=False), x=x.shape
    )
    acc = x @ layer["weight"] * layer["weight_scale"] + layer["shift"]
    np.testing.assert_array_equal(run_one(mod, x), np.where(acc >= 0, 1, -1))


@pytest.mark.parametrize(
    ("scale", "rounding", "expected"),
    [
        (0.5, Rounding.HALF_EVEN, is_requantize),  # a power of two: a multiplier is exact
        (0.5, Rounding.FLOOR, is_threshold),  # no requantize rounds down
    ],
)
def test_comparisons_only_where_no_multiplier_is_exact(scale, rounding, expected):
    spec = QuantSpec(bits=3, rounding=rounding)
    layer = {
        "weight": np.array([[3], [-2]]),
        "weight_scale": np.float32([[0.25]]),
        "factor": np.float32([[1]]),
        "shift": np.float32([[0.25]]),
    }
    body = network(**layer, result_scale=np.float32(scale), zero_point=0, spec=spec, relu=False)
    mod = realize(body, x=(1, 2))
    assert [call for b in bindings(mod["main"]) if expected(call := b.value)]
