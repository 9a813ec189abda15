"""Winograd's convolution F(2x2, 3x3): 16 products for 4 outputs of a 3x3 window, instead of 36.

Of a window of 4x4 inputs d and a filter g, the 2x2 outputs are

    A (B d B^T * G g G^T) A^T

where * is element by element, so that the sums over input channels are 16 matrix products. B and A
hold 0, 1 and -1 alone; G has halves. With 2 G in its place, everything is an integer, and the
outputs are 4 times too large, which the last shift takes away: the result is exact. The factors
leave 8 bits, so this is for instructions that multiply 16 bits, and for float32.

Source: S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin, S. Gray, Fast
Algorithms for Convolutional Neural Networks (2015), section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import te, tirx

from tvm_quant.backend.cpu.contraction import Dim, Window, stage
from tvm_quant.backend.cpu.isa import LOWEST, Dot, Isa
from tvm_quant.backend.cpu.tile import choose_tile

Array = npt.NDArray[Any]

TAPS = 3  # of a filter, along each axis
OUTPUTS = 2  # of a window, along each axis
INPUTS = TAPS + OUTPUTS - 1
POINTS = INPUTS * INPUTS  # products of a window
SCALE_BITS = 2  # outputs of integers are 2 ** SCALE_BITS times too large before the last shift
LARGEST_FACTOR = 4 * 255  # of 8-bit data: sums and differences of four

#: 2 G: what the taps of a filter are multiplied by.
FILTER = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
#: B: each row takes two of the four inputs: (first, second, sign of the second).
INPUT_ROWS = ((0, 2, -1), (1, 2, 1), (2, 1, -1), (1, 3, -1))
#: A: which of the four sums make an output, and with which sign.
OUTPUT_ROWS = ((1, 1, 1, 0), (0, 1, -1, -1))

# Costs in instructions on vectors, as measured on AVX2.
TRANSFORM = 5.0  # of the factors of a window of one input channel
INVERSE = 25.0  # of the outputs of a window, less what any convolution does with them
FAR_LOAD = 1.0  # of a vector of factors of filters, which no near cache holds
PEAK = 0.5  # of the best tile, as tiles count their cost
WORTHWHILE = 1.05  # a direct convolution that takes only this much longer stays
FACTORS_OF_A_STRIP = 128 * 1024  # that fit the second-level cache

#: Names of the blocks; the schedule rule knows them by these.
TRANSFORMED, PRODUCTS, OUTPUT = "winograd_input", "winograd_products", "winograd_output"
STRIP = "winograd_strip"  # annotation of the products: rows and columns of windows of a strip


def transform_filter(weight: Array) -> Array:
    """The 16 factors of each filter: of int8, int16 and 4 times G g G^T; of float32, G g G^T.

    Args:
        weight: (O, 3, 3, I).

    Returns:
        (O, 16, I).

    >>> transform_filter(np.ones((1, 3, 3, 1), "int8")).ravel().tolist()
    [4, 6, 2, 4, 6, 9, 3, 6, 2, 3, 1, 2, 4, 6, 2, 4]
    """
    is_float = weight.dtype.kind == "f"
    wide = weight.astype("float64" if is_float else "int64")
    points = np.einsum("ai,bj,oijc->oabc", FILTER, FILTER, wide)
    points = points.reshape(weight.shape[0], POINTS, weight.shape[-1])
    return np.asarray(points / 4, weight.dtype) if is_float else np.asarray(points, "int16")


def sums_fit(points: Array) -> bool:
    """Whether no sum of products of these factors with those of 8-bit data leaves 32 bits.

    Args:
        points: (O, 16, I), int16.

    >>> sums_fit(np.full((1, 16, 512), 100, "int16"))
    True
    >>> sums_fit(np.full((1, 16, 512), 1000, "int16"))
    False
    """
    outputs = np.abs(points.astype(np.int64)).sum(axis=(1, 2))
    return int(outputs.max(initial=0)) * LARGEST_FACTOR < 2**31


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Instructions per product of a lane.

    Attributes:
        direct: of a direct convolution.
        product: of the products of factors.
    """

    direct: float
    product: float


def product_cost(isa: Isa, dtype: str, dot: Dot | None) -> Cost | None:
    """What products cost; None where the target has none of 16 bits for data of 8.

    Args:
        isa: of the target.
        dtype: of the data: 8-bit integers, or float32.
        dot: what a direct convolution multiplies with, of integers.
    """
    if dtype == "float32":
        return Cost(direct=1.0, product=1.0)
    pairs = isa.dot("int16", size=2)
    if dtype not in LOWEST or dot is None or pairs is None:
        return None
    return Cost(direct=dot.per_product, product=pairs.per_product)


def strip_rows(
    isa: Isa,
    *,
    output: tuple[int, int],
    inputs: int,
    outputs: int,
    cost: Cost,
) -> int | None:
    """Rows of windows of a strip, or None where a direct convolution is as fast.

    Args:
        isa: of the target.
        output: height and width of the result.
        inputs, outputs: channels.
        cost: of the products of both.

    >>> from tvm_quant.backend.cpu.isa import ISAS
    >>> avx2 = next(isa for isa in ISAS if isa.name == "avx2")
    >>> layer = {"output": (28, 28), "inputs": 128, "outputs": 128}
    >>> strip_rows(avx2, **layer, cost=Cost(direct=0.75, product=1.0))
    2
    >>> strip_rows(avx2, **layer, cost=Cost(direct=0.25, product=1.0)) is None
    True
    """
    high, wide = (-(-size // OUTPUTS) for size in output)
    vectors = -(-outputs // isa.lanes)
    filled = math.gcd(inputs, isa.lanes)  # lanes of the vectors of input channels
    transform = TRANSFORM * isa.lanes / filled

    def strips(rows: int) -> float:
        """Instructions of a layer per input channel and vector of outputs."""
        _, relative = choose_tile(isa, rows=rows * wide, vectors=vectors, padding=None)
        steady = POINTS * cost.product * relative / PEAK
        loads = POINTS * FAR_LOAD / (rows * wide)
        window = steady + loads + transform / vectors + INVERSE / inputs
        return window * wide * rows * -(-high // rows)

    limit = WORTHWHILE * min(map(strips, range(1, high + 1)))
    if limit > math.prod(output) * TAPS * TAPS * cost.direct:
        return None
    good = (rows for rows in range(1, high + 1) if strips(rows) <= limit)
    return next(
        (rows for rows in good if POINTS * rows * wide * inputs <= FACTORS_OF_A_STRIP), None
    )


def winograd(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    window: Window,
    output: Sequence[int],
    channels: int,
    rows: int,
    factor_dtype: str,
    dtype: str,
) -> te.Tensor:
    """A 3x3 convolution with stride 1.

    Args:
        data: (*batch, height, width, I).
        weight: packed factors: (O/lanes, 16, I/group, lanes, group), or (O/lanes, 16, I, lanes).
        window: geometry.
        output: height and width of the result.
        channels: O of the result; the packed weights may hold more.
        rows: rows of windows of a strip; the windows are rounded up to whole strips.
        factor_dtype: as which the data is multiplied, int16 or float32.
        dtype: of the sums and the result.
    """
    batch = tuple(data.shape[:-3])
    high, wide = (-(-int(size) // OUTPUTS) for size in output)
    high = -(-high // rows) * rows
    sizes = [int(size) for size in weight.shape]
    group = sizes[4] if len(sizes) == 5 else 1
    depth, lanes = sizes[2] * group, sizes[3]
    staged = stage(data, window, (high * OUTPUTS, wide * OUTPUTS), depth, str(data.dtype))
    lead = len(batch)

    def factor(*index: Dim) -> tirx.Expr:
        point, at, channel = index[lead:]
        top, left = at // wide * OUTPUTS, at % wide * OUTPUTS

        def element(y: Dim, x: Dim) -> tirx.Expr:
            return staged(*index[:lead], top + y, left + x, channel).astype(factor_dtype)

        top_row, bottom_row, down = _input_row(point // INPUTS)
        first, second, right = _input_row(point % INPUTS)
        pairs = [_pair(right, element(y, first), element(y, second)) for y in (top_row, bottom_row)]
        return _pair(down, *pairs)

    factors = te.compute((*batch, POINTS, high * wide, depth), factor, name=TRANSFORMED)
    axes = [te.reduce_axis((0, sizes[2]), name="i")]
    axes += [te.reduce_axis((0, group), name="of_group")] if group > 1 else []

    def product(*index: Dim) -> tirx.Expr:
        point, at, channel = index[lead:]
        i = axes[0] * group + axes[1] if group > 1 else axes[0]
        x = factors(*index[:lead], point, at, i)
        w = weight(channel // lanes, point, axes[0], channel % lanes, *axes[1:])
        return te.sum(x.astype(dtype) * w.astype(dtype), axis=axes)

    packed = sizes[0] * lanes
    products = te.compute(
        (*batch, POINTS, high * wide, packed), product, name=PRODUCTS, attrs={STRIP: [rows, wide]}
    )

    def result(*index: Dim) -> tirx.Expr:
        y, x, channel = index[lead:]
        at = y // OUTPUTS * wide + x // OUTPUTS
        points = [
            [products(*index[:lead], row * INPUTS + column, at, channel) for row in range(INPUTS)]
            for column in range(INPUTS)
        ]
        sums = _output(x % OUTPUTS, [_output(y % OUTPUTS, column) for column in points])
        return sums if dtype.startswith("float") else sums >> SCALE_BITS

    return te.compute((*batch, *output, channels), result, name=OUTPUT)


def _input_row(point: Dim) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
    """A row of `INPUT_ROWS`, chosen by an expression."""
    first, second, sign = (
        _chosen(point, [tirx.const(row[column], "int64") for row in INPUT_ROWS])
        for column in range(3)
    )
    return first, second, sign


def _chosen(index: Dim, values: Sequence[tirx.Expr]) -> tirx.Expr:
    """One of the values: nothing is left of the choice where the index is a constant."""
    *rest, chosen = values
    for position, value in reversed(list(enumerate(rest))):
        chosen = tirx.Select(index == position, value, chosen)
    return chosen


def _pair(sign: tirx.Expr, first: tirx.Expr, second: tirx.Expr) -> tirx.Expr:
    return tirx.Select(sign > 0, first + second, first - second)


def _output(index: Dim, sums: Sequence[tirx.Expr]) -> tirx.Expr:
    return _chosen(index, [_signed_sum(signs, sums) for signs in OUTPUT_ROWS])


def _signed_sum(signs: Sequence[int], values: Sequence[tirx.Expr]) -> tirx.Expr:
    """Sum of the values with sign 1 less those with sign -1; the first of them has 1."""
    total = None
    for sign, value in zip(signs, values, strict=True):
        if total is None:
            total = value if sign else None
        elif sign:
            total = total + value if sign > 0 else total - value
    assert total is not None
    return total
