"""Sums and products of two tensors of codes in float32: every pair, by the formulas in NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from plain_tvm import run_one
from realized import U8, Grid, realize
from tvm_quant.op import Convention, Kind, QuantSpec, simulated_quantize

OP = relax.op
S8 = QuantSpec(symmetric=False)
BYTE = st.integers(0, 255)
ROUND = st.integers(10, 60).map(lambda thousandths: thousandths / 1000)


def fma(a, b, c):
    return (a.astype("float64") * b.astype("float64") + c.astype("float64")).astype("float32")


def codes_of(steps, spec):
    return np.clip(np.rint(steps), spec.qmin, spec.qmax).astype(spec.dtype)


def sum_numpy(codes_a, codes_b, a, b, y):
    r_a, r_b = a.scale / y.scale, b.scale / y.scale
    z_a, z_b, z_y = (grid.zero_point.astype("float32") for grid in (a, b, y))
    rest = z_y - fma(r_a, z_a, r_b * z_b)
    return codes_of(fma(codes_a, r_a, fma(codes_b, r_b, rest)), y.spec)


def product_numpy(codes_a, codes_b, a, b, y):
    steps = (codes_a.astype("int32") - a.zero_point) * (codes_b.astype("int32") - b.zero_point)
    product = steps.astype("float32") * (a.scale * b.scale / y.scale)
    return codes_of(product + y.zero_point.astype("float32"), y.spec)


def constants(grid):
    return relax.const(grid.scale), relax.const(grid.zero_point.astype(grid.spec.dtype))


def realized(operator, codes_a, codes_b, a, b, y):
    """What becomes of the operator between tensors of codes."""

    def body(bb, left, right):
        left = bb.emit(OP.dequantize(left, *constants(a)))
        right = bb.emit(OP.dequantize(right, *constants(b)))
        quantizer = simulated_quantize(
            bb.emit(operator(left, right)),
            y.scale,
            y.zero_point,
            spec=y.spec,
            kind=Kind.ACTIVATION,
            convention=Convention.ONNXRUNTIME,
        )
        return bb.emit(OP.quantize(bb.emit(quantizer), *constants(y), out_dtype=y.spec.dtype))

    left, right = ((str(codes.dtype), *codes.shape) for codes in (codes_a, codes_b))
    return run_one(realize(body, left=left, right=right), codes_a, codes_b)


@pytest.mark.parametrize(
    ("operator", "reference"), [(OP.add, sum_numpy), (OP.multiply, product_numpy)]
)
@pytest.mark.parametrize("spec", [U8, S8], ids=["u8", "s8"])
@settings(max_examples=10)
@given(scales=st.tuples(ROUND, ROUND, ROUND), zeros=st.tuples(BYTE, BYTE, BYTE))
def test_every_pair_of_codes(operator, reference, spec, scales, zeros):
    grids = [Grid(scales[i], zeros[i] + spec.qmin, spec) for i in range(3)]
    a, b = np.mgrid[spec.qmin : spec.qmax + 1, spec.qmin : spec.qmax + 1].astype(spec.dtype)
    got = realized(operator, a, b, *grids)
    np.testing.assert_array_equal(got, reference(a, b, *grids))


def test_an_operand_that_is_constant_along_rows_is_added_first():
    a, b, y = Grid(0.021, 67), Grid(0.042, 162), Grid(0.03, 206)
    column, row = np.arange(256).astype("uint8")[:, None], np.arange(256).astype("uint8")
    swapped = sum_numpy(row, column, b, a, y)
    assert (swapped != sum_numpy(column, row, a, b, y)).sum() == 4023
    np.testing.assert_array_equal(realized(OP.add, column, row, a, b, y), swapped)
    np.testing.assert_array_equal(realized(OP.add, row, column, b, a, y), swapped)
