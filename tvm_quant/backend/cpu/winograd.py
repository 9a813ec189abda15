"""Winograd's convolutions of 3x3 windows: F(2x2) has 16 products for 4 outputs, F(4x4) 36 for 16.

Of a square of inputs d and a filter g, the m x m outputs are

    A (B d B^T * G g G^T) A^T

where * is element by element, so that the sums over input channels are (m + 2)^2 matrix products.
The factors of a filter are fractions; a common multiple of their denominators in place of 1 makes
everything an integer, and the outputs too large by what the last step divides by. Sums on the way
may leave 32 bits; modulo 2**32, outputs that fit are right all the same: the result is exact. The
factors leave 8 bits, so this is for instructions that multiply 16, and for float32. Those of
filters take 3.6 or 8 times the memory of 8-bit weights.

Source: S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin, S. Gray, Fast
Algorithms for Convolutional Neural Networks (2015), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import te, tirx

from tvm_quant.backend.cpu.contraction import Dim, Window, stage
from tvm_quant.backend.cpu.isa import LOWEST, Dot, Isa
from tvm_quant.backend.cpu.tile import choose_tile
from tvm_quant.backend.cpu.wrapping import Wrapping

Array = npt.NDArray[Any]
Values = Sequence[Any]  # expressions, arrays or numbers

TAPS = 3  # of a filter, along each axis
LARGEST_CODE = 256  # of 8-bit data, more than the magnitude of each

# Costs in instructions on vectors, as measured on AVX2 and AVX-512.
FAR_LOAD = 0.25  # of a vector of factors of filters, which no near cache holds
DISTANT_LOAD = 3.0  # of one from the last cache: other layers took its place in the others
MEMORY_LOAD = 25.0  # of one that no cache holds
NEAR_BYTES = 2**21  # of factors of filters that the second-level cache holds until the next run
CACHED_BYTES = 6 * 2**20  # that some cache holds
PEAK = 0.5  # of the best tile, as tiles count their cost
WORTHWHILE = 1.05  # a direct convolution that takes only this much longer stays
FACTORS_OF_A_STRIP = 128 * 1024  # that fit the second-level cache

#: Names of the blocks; the schedule rule knows them by these.
TRANSFORMED, PRODUCTS = "winograd_input", "winograd_products"
COLUMNS, WINDOWS, OUTPUT = "winograd_columns", "winograd_windows", "winograd_output"
#: Annotation of the products: rows and columns of windows of a strip, outputs of a window.
STRIP = "winograd_strip"


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """F(m x m, 3 x 3), along one axis.

    Attributes:
        filter: (m + 2, 3), G times what makes it whole.
        inputs: B: from the m + 2 inputs of a window to their factors.
        results: A: from the m + 2 sums of products to m outputs.
        scales: by which these are too large.
        transform: instructions for the factors of a window of a vector of input channels.
        inverse: instructions for the outputs of a window, less what any convolution does with them.
    """

    filter: Array
    inputs: Callable[[Values], Values]
    results: Callable[[Values], Values]
    scales: tuple[int, ...]
    transform: float
    inverse: float

    @property
    def outputs(self) -> int:
        """m, of a window."""
        return len(self.scales)

    @property
    def size(self) -> int:
        """Inputs of a window."""
        return self.outputs + TAPS - 1

    @property
    def points(self) -> int:
        """Products of a window of one input channel."""
        return self.size * self.size


def _inputs_of_2(d: Values) -> Values:
    return d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]


def _results_of_2(m: Values) -> Values:
    return m[0] + m[1] + m[2], m[1] - m[2] - m[3]


def _inputs_of_4(d: Values) -> Values:
    even, odd = d[4] - _times(4, d[2]), d[3] - _times(4, d[1])
    near, apart = d[4] - d[2], _times(2, d[3] - d[1])
    first, last = near + _times(4, d[0] - d[2]), d[5] - d[3] - _times(2, apart)
    return first, even + odd, even - odd, near + apart, near - apart, last


def _results_of_4(m: Values) -> Values:
    ones, signs = m[1] + m[2], m[1] - m[2]
    twos, halves = m[3] + m[4], m[3] - m[4]
    first = twos + _times(2, m[0] + _times(2, m[0] - ones))
    last = _times(2, halves + m[5] + _times(2, m[5])) - signs
    return first, halves - _times(2, signs), twos - ones, last


def _times(factor: int, value: Any) -> Any:
    """The product, in the type of an expression."""
    is_expr = isinstance(value, tirx.Expr)
    return value * (tirx.const(factor, str(value.ty.dtype)) if is_expr else factor)


#: Points 0, 1, -1 and infinity.
F2 = Algorithm(
    filter=np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]),
    inputs=_inputs_of_2,
    results=_results_of_2,
    scales=(2, 2),
    transform=80.0,
    inverse=25.0,
)
#: Points 0, 1, -1, 2, -2 and infinity.
F4 = Algorithm(
    filter=np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [1, 2, 4], [1, -2, 4], [0, 0, 1]]),
    inputs=_inputs_of_4,
    results=_results_of_4,
    scales=(24, 12, 6, 6),
    transform=290.0,
    inverse=240.0,
)


def transform_filter(weight: Array, algorithm: Algorithm) -> Array:
    """The factors of each filter, with the integers of `Algorithm.filter`.

    Args:
        weight: (O, 3, 3, I), int8 or float32.
        algorithm: whose they are.

    Returns:
        (O, points, I): int16 of int8, else float32.

    >>> transform_filter(np.ones((1, 3, 3, 1), "int8"), F2).ravel().tolist()
    [4, 6, 2, 4, 6, 9, 3, 6, 2, 3, 1, 2, 4, 6, 2, 4]
    """
    is_float = weight.dtype.kind == "f"
    wide = weight.astype("float64" if is_float else "int64")
    points = np.einsum("ai,bj,oijc->oabc", algorithm.filter, algorithm.filter, wide)
    points = points.reshape(weight.shape[0], algorithm.points, weight.shape[-1])
    if not is_float:
        return np.asarray(points, "int16")
    return np.asarray(points / algorithm.scales[0] ** 2, "float32")


def is_exact(weight: Array, algorithm: Algorithm) -> bool:
    """Whether the outputs for any 8-bit data, as much too large as they are, fit 32 bits.

    Sums on the way may leave them: integers are added modulo 2**32.

    Args:
        weight: (O, 3, 3, I), int8.
        algorithm: which computes them.

    >>> is_exact(np.full((1, 3, 3, 256), 50, "int8"), F4)
    True
    >>> is_exact(np.full((1, 3, 3, 256), 127, "int8"), F4)
    False
    """
    largest = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(1).max(initial=0)
    _, bits = _odd_part(max(algorithm.scales) ** 2)
    return int(largest) * LARGEST_CODE << bits < 2**31


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to compute a layer.

    Attributes:
        algorithm: by which.
        rows: of windows, of a strip.
        cost: instructions on vectors.
    """

    algorithm: Algorithm
    rows: int
    cost: float


def plan(
    isa: Isa,
    *,
    dtype: str,
    dot: Dot | None,
    window: Window,
    output: Sequence[Dim],
    weight: Array,
) -> Plan | None:
    """The fastest way to compute a layer; None where that is a direct convolution.

    Args:
        isa: of the target.
        dtype: of the data.
        dot: what a direct convolution of integers multiplies with.
        window: geometry.
        output: height and width of the result.
        weight: (O, *kernel, I); O fills half a vector at least, and nothing less than that.

    >>> from tvm_quant.backend.cpu.isa import ISAS
    >>> vnni, ones = ISAS[0], (1, 1)
    >>> window = Window(kernel=(3, 3), stride=ones, dilation=ones, pad_before=ones, pad_after=ones)
    >>> layer = {"dtype": "uint8", "dot": vnni.dot("uint8"), "window": window, "output": (28, 28)}
    >>> found = plan(vnni, **layer, weight=np.ones((64, 3, 3, 64), "int8"))
    >>> found.algorithm is F4, found.rows
    (True, 1)
    >>> plan(vnni, **layer, weight=np.ones((8, 3, 3, 8), "int8")) is None
    True
    """
    pairs = isa.dot("int16", size=2)
    if not _is_3x3(window, output) or weight.shape[0] % (isa.lanes // 2):
        return None
    if dtype == "float32" == str(weight.dtype):
        direct = product = 1.0
        lanes, algorithms = isa.lanes, [F2]
    elif dtype in LOWEST and dot and pairs:
        direct, product = dot.per_product, pairs.per_product
        lanes, algorithms = 2 * isa.lanes, [F2, F4]
        algorithms = [algorithm for algorithm in algorithms if is_exact(weight, algorithm)]
    else:
        return None
    outputs, inputs = weight.shape[0], weight.shape[-1]
    layer = _Layer(
        output=(int(output[0]), int(output[1])),
        inputs=inputs,
        vectors=-(-outputs // isa.lanes),
        filled=math.gcd(inputs, lanes),
        product=product,
        filter_bits=32 if dtype == "float32" else 16,
    )
    found = [best for algorithm in algorithms if (best := _best_strips(algorithm, isa, layer))]
    limit = direct * TAPS * TAPS * math.prod(layer.output) * inputs * layer.vectors
    best = min(found, key=lambda plan: plan.cost, default=None)
    return best if best and best.cost * WORTHWHILE <= limit else None


def _is_3x3(window: Window, output: Sequence[Dim]) -> bool:
    return (
        window.kernel == (TAPS, TAPS)
        and all(step == 1 for step in window.stride + window.dilation + window.spread)
        and all(isinstance(size, int | tirx.IntImm) for size in output)
    )


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """What the cost of a layer depends on.

    Attributes:
        output: height and width.
        inputs: channels.
        vectors: of output channels.
        filled: input channels in a vector of factors.
        product: instructions per product of a lane.
        filter_bits: of a factor of a filter.
    """

    output: tuple[int, int]
    inputs: int
    vectors: int
    filled: int
    product: float
    filter_bits: int


def _best_strips(algorithm: Algorithm, isa: Isa, layer: _Layer) -> Plan | None:
    """The lowest strips but for a few percent; None if one row of windows is too much."""
    size, points = algorithm.outputs, algorithm.points
    high, wide = (-(-extent // size) for extent in layer.output)
    vectors_of_filters = points * layer.inputs * layer.vectors * layer.filter_bits // 32
    first_loads = vectors_of_filters * _first_load(vectors_of_filters * isa.vector_bits // 8)

    def cost(rows: int) -> float:
        _, relative = choose_tile(isa, rows=rows * wide, vectors=layer.vectors, padding=None)
        steady = points * (layer.product * relative / PEAK + FAR_LOAD / (rows * wide))
        transform = algorithm.transform * layer.inputs / layer.filled
        window = layer.vectors * (steady * layer.inputs + algorithm.inverse) + transform
        windows = window * wide * rows * -(-high // rows)
        return windows + first_loads

    costs = {
        rows: cost(rows)
        for rows in range(1, high + 1)
        if points * rows * wide * layer.inputs <= FACTORS_OF_A_STRIP
    }
    limit = WORTHWHILE * min(costs.values(), default=0)
    good = (Plan(algorithm=algorithm, rows=rows, cost=c) for rows, c in costs.items() if c <= limit)
    return next(good, None)


def _first_load(filter_bytes: int) -> float:
    """Cost of a vector of the factors of all filters, the first time in a run."""
    if filter_bytes <= NEAR_BYTES:
        return 0.0
    return DISTANT_LOAD if filter_bytes <= CACHED_BYTES else MEMORY_LOAD


def winograd(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    algorithm: Algorithm,
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
        weight: packed factors: (O/lanes, points, I/group, lanes, group), or
            (O/lanes, points, I, lanes).
        algorithm: whose factors these are.
        window: geometry.
        output: height and width of the result.
        channels: O of the result; the packed weights may hold more.
        rows: rows of windows of a strip; the windows are rounded up to whole strips.
        factor_dtype: as which the data is multiplied, int16 or float32.
        dtype: of the sums and the result.
    """
    size, across = algorithm.outputs, algorithm.size
    batch = tuple(data.shape[:-3])
    high, wide = (-(-int(extent) // size) for extent in output)
    high = -(-high // rows) * rows
    sizes = [int(extent) for extent in weight.shape]
    group = sizes[4] if len(sizes) == 5 else 1
    depth, lanes = sizes[2] * group, sizes[3]
    staged = stage(data, window, (high * size, wide * size), depth, str(data.dtype))
    lead = len(batch)

    def factor(*index: Dim) -> tirx.Expr:
        point, at, channel = index[lead:]
        top, left = at // wide * size, at % wide * size

        def element(y: Dim, x: Dim) -> tirx.Expr:
            return staged(*index[:lead], top + y, left + x, channel).astype(factor_dtype)

        def row(y: Dim) -> tirx.Expr:
            values = algorithm.inputs([element(y, x) for x in range(across)])
            return _chosen(point % across, values)

        return _chosen(point // across, algorithm.inputs([row(y) for y in range(across)]))

    shape = (*batch, algorithm.points, high * wide, depth)
    factors = te.compute(shape, factor, name=TRANSFORMED)
    axes = [te.reduce_axis((0, sizes[2]), name="i")]
    axes += [te.reduce_axis((0, group), name="of_group")] if group > 1 else []

    def product(*index: Dim) -> tirx.Expr:
        point, at, channel = index[lead:]
        i = axes[0] * group + axes[1] if group > 1 else axes[0]
        x = factors(*index[:lead], point, at, i)
        w = weight(channel // lanes, point, axes[0], channel % lanes, *axes[1:])
        return te.sum(x.astype(dtype) * w.astype(dtype), axis=axes)

    packed = sizes[0] * lanes
    shape = (*batch, algorithm.points, high * wide, packed)
    strip = {STRIP: [rows, wide, size]}
    products = te.compute(shape, product, name=PRODUCTS, attrs=strip)

    def of_column(*index: Dim) -> tirx.Expr:
        y, x, column, channel = index[lead:]
        at = y // size * wide + x
        points = [
            products(*index[:lead], row * across + column, at, channel) for row in range(across)
        ]
        return _chosen(y % size, _results(algorithm, points))

    shape = (*batch, high * size, wide, across, packed)
    columns = te.compute(shape, of_column, name=COLUMNS)

    def of_window(*index: Dim) -> tirx.Expr:
        y, x, channel = index[lead:]
        row = [columns(*index[:lead], y, x // size, column, channel) for column in range(across)]
        total = _chosen(x % size, _results(algorithm, row))
        if dtype.startswith("float"):
            return total
        odd = _odd_part(algorithm.scales[0])[0] ** 2
        if odd > 1:
            total = Wrapping(total).divided(odd).expr
        shifts = [tirx.const(_odd_part(scale)[1], "int32") for scale in algorithm.scales]
        return total >> _chosen(y % size, shifts) + _chosen(x % size, shifts)

    shape = (*batch, high * size, wide * size, packed)
    windows = te.compute(shape, of_window, name=WINDOWS)
    return te.compute((*batch, *output, channels), lambda *index: windows(*index), name=OUTPUT)


def _results(algorithm: Algorithm, sums: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """The outputs of an axis, of integers modulo 2**32."""
    if str(sums[0].ty.dtype).startswith("float"):
        return list(algorithm.results(sums))
    return [result.expr for result in algorithm.results([Wrapping(value) for value in sums])]


def _odd_part(number: int) -> tuple[int, int]:
    """(odd, bits) of number = odd * 2**bits.

    >>> _odd_part(24)
    (3, 3)
    """
    bits = (number & -number).bit_length() - 1
    return number >> bits, bits


def _chosen(index: Dim, values: Sequence[tirx.Expr]) -> tirx.Expr:
    """One of the values: nothing is left of the choice where the index is a constant."""
    *rest, chosen = values
    for position, value in reversed(list(enumerate(rest))):
        chosen = tirx.Select(index == position, value, chosen)
    return chosen
