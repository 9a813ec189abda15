"""Weights that a CPU multiplies with neighbouring inputs and adds in 16 bits: pairs.

`VPMADDUBSW` adds the products of two unsigned bytes and two weights with saturation. 255 times two
codes of one sign fits as long as these are at most 128 together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tvm_quant.backend.cpu.pack import pair_sums
from tvm_quant.op import ContractionAxes
from tvm_quant.transform.channel_vector import Array, weight_by_output

QUAD = 4  # products of a lane


def largest_pairs(weight: Array, axes: ContractionAxes) -> Array:
    """Largest sum of the magnitudes of those of one sign in a pair, for each output channel: (O,).

    Pairs are input channels 0 and 1, 2 and 3, and so on. Where the channels fill no quads, a row of
    pixels may count as if it had one channel. Depthwise and transposed convolutions have no pairs:
    they multiply in 16 bits.

    Args:
        weight: of a contraction.
        axes: of that contraction.
    """
    values = np.append(weight.reshape(-1), 0)
    largest = np.zeros(len(weight_by_output(weight, axes)))
    for places in _pairs(weight.shape, axes):
        largest = np.maximum(largest, pair_sums(values[places]).max(axis=1, initial=0.0))
    return largest


def limit_pairs(codes: Array, axes: ContractionAxes, limit: int) -> Array:
    """The codes of a weight with the larger one of each pair so much smaller that the pair fits.

    Args:
        codes: of the weight of a contraction.
        axes: of that contraction.
        limit: see `HardwareConfig.largest_pair`.
    """
    flat = np.append(codes.reshape(-1), 0)
    for places in _pairs(codes.shape, axes):
        pairs = flat[places]
        excess = np.maximum(pair_sums(pairs) - limit, 0)
        larger = np.abs(pairs).argmax(axis=2)[..., None]
        smaller = np.take_along_axis(pairs, larger, 2)
        smaller -= np.sign(smaller) * excess[..., None]
        flat[np.take_along_axis(places, larger, 2)] = smaller
    return flat[:-1].reshape(codes.shape)


def _pairs(shape: tuple[int, ...], axes: ContractionAxes) -> Iterator[Array]:
    """Ways to pair: (O, pairs, 2) places in the flat weight; a last place is that of no weight."""
    channels = (axes.weight_output, axes.weight_input)
    kernel = [size for axis, size in enumerate(shape) if axis not in channels]
    place = weight_by_output(np.arange(math.prod(shape)).reshape(shape), axes)
    outputs, inputs, _ = place.shape
    if axes.transposed or (inputs == 1 and axes.groups > 1):
        return
    pixels = np.moveaxis(place.reshape(outputs, inputs, *kernel), 1, -1)
    yield _neighbours(pixels, math.prod(shape))
    if inputs % QUAD and kernel:
        yield _neighbours(pixels.reshape(*pixels.shape[:-2], -1), math.prod(shape))


def _neighbours(places: Array, nothing: int) -> Array:
    """Neighbours 0 and 1, 2 and 3, ... on the last axis of (O, ...): (O, pairs, 2)."""
    widths = [(0, 0)] * (places.ndim - 1) + [(0, places.shape[-1] % 2)]
    padded = np.pad(places, widths, constant_values=nothing)
    return padded.reshape(len(places), -1, 2)
