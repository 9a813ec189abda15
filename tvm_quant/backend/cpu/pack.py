"""Packing weights while compiling."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def largest_pair(weight: Array) -> int:
    """Largest sum of the magnitudes of those of one sign of two neighbours: 0 and 1, 2 and 3, ...

    Args:
        weight: int8, (..., I).

    >>> largest_pair(np.int8([[100, -90, 20, 30], [-60, -50, 1, 127]]))
    128
    """
    wide = weight.astype(np.int32)
    if wide.shape[-1] % 2:
        wide = np.pad(wide, [(0, 0)] * (wide.ndim - 1) + [(0, 1)])
    return int(pair_sums(wide.reshape(-1, 2)).max(initial=0))


def pair_sums(pairs: Array) -> Array:
    """Sum of the magnitudes of those of one sign, the larger of both: (..., 2) to (...).

    >>> pair_sums(np.array([[3, 4], [3, -4], [-3, -4]])).tolist()
    [7, 4, 7]
    """
    positive, negative = (np.maximum(sign * pairs, 0).sum(axis=-1) for sign in (1, -1))
    return np.asarray(np.maximum(positive, negative))


def pack_dense(weight: Array, *, lanes: int, group: int = 1) -> Array:
    """Weights in the order in which a tile reads them, padded with zeros to whole vectors.

    Args:
        weight: (O, *kernel, I).
        lanes: output channels of a vector.
        group: neighbouring input channels that are multiplied at once.

    Returns:
        (O/lanes, *kernel, I, lanes); of groups, (O/lanes, *kernel, I/group, lanes, group).

    >>> pack_dense(np.arange(6).reshape(3, 2), lanes=2).tolist()
    [[[0, 2], [1, 3]], [[4, 0], [5, 0]]]
    >>> pack_dense(np.arange(6).reshape(3, 2), lanes=2, group=2).tolist()
    [[[[0, 1], [2, 3]]], [[[4, 5], [0, 0]]]]
    """
    channels, depth = weight.shape[0], weight.shape[-1]
    padding = [(0, 0)] * weight.ndim
    padding[0] = (0, -channels % lanes)
    padding[-1] = (0, -depth % group)
    padded = np.pad(weight, padding)
    blocks = padded.reshape(-1, lanes, *padded.shape[1:])
    packed = np.moveaxis(blocks, 1, -1)
    if group > 1:
        packed = packed.reshape(*packed.shape[:-2], -1, group, lanes).swapaxes(-1, -2)
    return np.ascontiguousarray(packed)


def pack_taps(weight: Array, *, lanes: int, taps: int, group: int) -> Array:
    """Weights of a depthwise convolution, `taps` neighbouring rows beside each other.

    Args:
        weight: (C, *kernel); C is a multiple of `lanes`, the last axis but one is that of rows.
        lanes: channels of a vector.
        taps: neighbours that are multiplied at once.
        group: place for them; the rest is zero.

    Returns:
        (*kernel, C/lanes, lanes, group), with `taps` times fewer rows, rounded up.

    >>> pack_taps(np.arange(6).reshape(2, 3, 1), lanes=2, taps=3, group=4).tolist()
    [[[[[0, 1, 2, 0], [3, 4, 5, 0]]]]]
    """
    *outer, rows, columns = weight.shape[1:]
    padding = [(0, 0)] * weight.ndim
    padding[-2] = (0, -rows % taps)
    split = np.pad(weight, padding).reshape(-1, lanes, *outer, -(-rows // taps), taps, columns)
    last = np.moveaxis(split, [0, 1, -2], [-3, -2, -1])
    return np.ascontiguousarray(np.pad(last, [(0, 0)] * (last.ndim - 1) + [(0, group - taps)]))
