"""Weights that a CPU multiplies with neighbouring inputs and adds in 16 bits: pairs.

`VPMADDUBSW` adds the products of two unsigned bytes and two weights with saturation. 255 times two
codes of one sign fits as long as these are at most 128 together.
"""

from __future__ import annotations

import numpy as np

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
    channels = (axes.weight_output, axes.weight_input)
    kernel = [size for axis, size in enumerate(weight.shape) if axis not in channels]
    by_output = weight_by_output(weight, axes)
    outputs, inputs, _ = by_output.shape
    if axes.transposed or (inputs == 1 and axes.groups > 1):
        return np.zeros(outputs)
    pixels = np.moveaxis(by_output.reshape(outputs, inputs, *kernel), 1, -1)
    largest = _largest(pixels)
    if inputs % QUAD and kernel:
        largest = np.maximum(largest, _largest(pixels.reshape(*pixels.shape[:-2], -1)))
    return largest


def _largest(values: Array) -> Array:
    """The same for neighbours 0 and 1, 2 and 3, ... on the last axis of (O, ...)."""
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] % 2)])
    pairs = padded.reshape(len(values), -1, 2)
    sums = [np.maximum(sign * pairs, 0).sum(axis=2) for sign in (1, -1)]
    return np.asarray(np.maximum(*sums).max(axis=1, initial=0.0))
