"""Operators against the arithmetic of their kernels, written down once more with plain numbers.

The formulas were found by comparing single operators with LiteRT 2.3.0: all codes were equal.
"""

import math

import numpy as np
import pytest

from plain_tvm import run_one
from tvm_quant import quantize
from tvm_quant.frontend import load

pytest.importorskip("tflite")

from tflite_models import Tensor, one_operator

CODES = np.arange(-128, 128).astype("int8")


def integers(model, rounding, *inputs):
    return run_one(quantize(load(model, rounding=rounding)[0]), *inputs)


def clamp(value):
    return min(max(value, -128), 127)


def away(value):
    """To the nearest whole number, ties away from zero."""
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)


def q31(value, multiplier):
    """Gemmlowp's two roundings."""
    fraction, exponent = math.frexp(multiplier)
    high = (value * away(fraction * 2**31) * 2 ** max(exponent, 0) + 2**30) >> 31
    return away(high / 2 ** max(-exponent, 0))


def test_a_requantized_tensor_of_xnnpack():
    scales, zeros = (np.float32(0.1), np.float32(0.17)), (11, -3)
    model = one_operator(
        "QUANTIZE",
        [Tensor("x", (256,), scale=scales[0], zero_point=zeros[0])],
        Tensor("y", (256,), scale=scales[1], zero_point=zeros[1]),
    )
    factor = round(float(np.float32(256) * scales[0] / scales[1]))
    expected = [clamp((((int(c) - zeros[0]) * factor + 128) >> 8) + zeros[1]) for c in CODES]
    assert integers(model, "xnnpack", CODES).tolist() == expected
    plain = [
        clamp(q31(int(c) - zeros[0], float(scales[0]) / float(scales[1])) + zeros[1]) for c in CODES
    ]
    assert integers(model, "reference", CODES).tolist() == plain


def test_a_leak():
    scale, zero, alpha = np.float32(0.1), 20, np.float32(0.13)
    grid = {"scale": scale, "zero_point": zero}
    model = one_operator(
        "LEAKY_RELU",
        [Tensor("x", (256,), **grid)],
        Tensor("y", (256,), scale=0.05, zero_point=-4),
        "LeakyReluOptions",
        Alpha=alpha,
    )
    ratio = scale / np.float32(0.05)
    steps = [int(code) - zero for code in CODES]
    expected = [
        clamp(q31(step, float(ratio if step >= 0 else scale * alpha / np.float32(0.05))) - 4)
        for step in steps
    ]
    assert integers(model, "reference", CODES).tolist() == expected
    factors = [round(float(np.float32(256) * slope)) for slope in (ratio, ratio * alpha)]
    short = [clamp(((step * factors[step < 0] + 128) >> 8) - 4) for step in steps]
    assert integers(model, "xnnpack", CODES).tolist() == short


@pytest.mark.parametrize("code", ["ADD", "SUB"])
def test_sums_of_xnnpack(code):
    scales, zeros = np.float32([0.05, 0.021, 0.06]), (3, -10, 5)
    rng = np.random.default_rng(0)
    left, right = rng.integers(-128, 128, (2, 500)).astype("int8")
    tensors = [Tensor(n, (500,), scale=scales[i], zero_point=zeros[i]) for i, n in enumerate("ab")]
    result = Tensor("y", (500,), scale=scales[2], zero_point=zeros[2])
    model = one_operator(code, tensors, result, f"{code.title()}Options")
    ratios = [float(scale / scales[2]) for scale in scales[:2]]
    shift = 20 - math.floor(math.log2(max(ratios)))
    factors = [round(ratio * 2**shift) for ratio in ratios]
    sign = 1 if code == "ADD" else -1
    expected = [
        clamp(
            (
                (
                    (int(a) - zeros[0]) * factors[0]
                    + sign * (int(b) - zeros[1]) * factors[1]
                    + 2 ** (shift - 1)
                )
                >> shift
            )
            + zeros[2]
        )
        for a, b in zip(left, right, strict=True)
    ]
    assert integers(model, "xnnpack", left, right).tolist() == expected


def test_products_of_the_reference():
    scales, zeros = np.float32([0.05, 0.021, 0.14]), (3, -10, 5)
    rng = np.random.default_rng(1)
    left, right = rng.integers(-128, 128, (2, 500)).astype("int8")
    tensors = [Tensor(n, (500,), scale=scales[i], zero_point=zeros[i]) for i, n in enumerate("ab")]
    result = Tensor("y", (500,), scale=scales[2], zero_point=zeros[2])
    model = one_operator("MUL", tensors, result, "MulOptions")
    ratio = float(scales[0] * scales[1] / scales[2])
    expected = [
        clamp(q31((int(a) - zeros[0]) * (int(b) - zeros[1]), ratio) + zeros[2])
        for a, b in zip(left, right, strict=True)
    ]
    assert integers(model, "reference", left, right).tolist() == expected


def test_a_mean_takes_the_count_into_its_multiplier():
    x = np.random.default_rng(2).integers(-128, 128, (1, 7, 7, 40)).astype("int8")
    axes = Tensor("axes", (2,), "int32", data=[1, 2])
    grids = {"scale": 0.0235, "zero_point": -128}, {"scale": 0.0047, "zero_point": -120}
    model = one_operator(
        "MEAN",
        [Tensor("x", x.shape, **grids[0]), axes],
        Tensor("y", (1, 40), **grids[1]),
        "ReducerOptions",
    )
    fraction, exponent = math.frexp(float(np.float32(0.0235)) / float(np.float32(0.0047)))
    factor, shift = (away(fraction * 2**31) << 5) // 49, exponent - 5
    totals = x.astype(int).sum(axis=(1, 2)).ravel() + 49 * 128
    expected = [clamp(away(((int(t) * factor + 2**30) >> 31) / 2**-shift) - 120) for t in totals]
    assert integers(model, "reference", x).ravel().tolist() == expected


@pytest.mark.parametrize("mode", ["", "AlignCorners", "HalfPixelCenters"])
@pytest.mark.parametrize(("rounding", "bits"), [("reference", 10), ("xnnpack", 11)])
def test_an_image_between_its_points(mode, rounding, bits):
    x = np.random.default_rng(3).integers(-128, 128, (1, 5, 4, 2)).astype("int8")
    sizes = (7, 9)
    grid = {"scale": 0.1, "zero_point": 3}
    model = one_operator(
        "RESIZE_BILINEAR",
        [Tensor("x", x.shape, **grid), Tensor("size", (2,), "int32", data=sizes)],
        Tensor("y", (1, *sizes, 2), **grid),
        "ResizeBilinearOptions",
        **({mode: True} if mode else {}),
    )
    expected = np.zeros((1, *sizes, 2), int)
    for row in range(sizes[0]):
        top, bottom, v = neighbours(row, 5, sizes[0], mode, bits)
        for column in range(sizes[1]):
            left, right, h = neighbours(column, 4, sizes[1], mode, bits)
            one = 1 << bits
            image = x[0].astype(int)
            total = (image[top, left] * (one - h) + image[top, right] * h) * (one - v)
            total = total + (image[bottom, left] * (one - h) + image[bottom, right] * h) * v
            expected[0, row, column] = [finished(int(t), 2 * bits, rounding) for t in total]
    np.testing.assert_array_equal(integers(model, rounding, x), expected)


def finished(total, bits, rounding):
    if rounding == "reference":
        return away(total / 2**bits)
    return (total + 2 ** (bits - 1)) >> bits


def neighbours(at, size, wanted, mode, bits):
    """(first, second, how far the second is)."""
    span, over = (size - 1, wanted - 1) if mode == "AlignCorners" else (size, wanted)
    one = 1 << bits
    if bits == 10:
        step = (one * span + over // 2) // over
        place = at * step + (step // 2 - one // 2 if mode == "HalfPixelCenters" else 0)
        first = max(int(place / one), 0)
        return first, min(int((place + one - 1) / one), size - 1), place - one * first
    step = np.float32(span) / np.float32(over)
    place = np.float32(at) * step
    if mode == "HalfPixelCenters":
        place = min(max(place + np.float32(0.5) * step - np.float32(0.5), 0.0), size - 1)
    first = int(place)
    return first, min(first + 1, size - 1), round(float(place - first) * one)
