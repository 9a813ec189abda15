"""Integer operators in NumPy int64, by definition: what realized arithmetic has to equal.

Fractions are computed in float64.
"""

import itertools

import numpy as np

from tvm_quant.op import QuantSpec, quantize_numpy


def centred(real, scale, zero_point, spec: QuantSpec) -> np.ndarray:
    """Codes minus zero point, int64."""
    return quantize_numpy(real, scale, zero_point, spec).astype("int64") - zero_point


def convolve(x, w, *, strides=1, padding=0, dilation=1, groups=1) -> np.ndarray:
    """Convolution of (N, C, *space) with (O, C / groups, *window).

    Args:
        padding: one number, or all befores then all afters.
    """
    dims = x.ndim - 2
    strides, dilation = _spread(strides, dims), _spread(dilation, dims)
    before, after = _split(padding, dims)
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    window = w.shape[2:]
    sizes = [
        (x.shape[2 + d] - dilation[d] * (window[d] - 1) - 1) // strides[d] + 1 for d in range(dims)
    ]
    out = np.zeros((x.shape[0], groups, w.shape[0] // groups, *sizes), _wide(x, w))
    grouped_w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    for at in itertools.product(*map(range, window)):
        cut = tuple(
            slice(
                at[d] * dilation[d],
                at[d] * dilation[d] + strides[d] * (sizes[d] - 1) + 1,
                strides[d],
            )
            for d in range(dims)
        )
        seen = x[(slice(None), slice(None), *cut)]
        seen = seen.reshape(x.shape[0], groups, -1, *sizes)
        out += np.einsum("ngi...,goi->ngo...", seen, grouped_w[(..., *at)])
    return out.reshape(x.shape[0], w.shape[0], *sizes)


def convolve_transposed(
    x, w, *, strides=1, padding=0, dilation=1, groups=1, output_padding=0
) -> np.ndarray:
    """Transposed convolution of (N, C, *space) with (C, O / groups, *window)."""
    dims = x.ndim - 2
    strides, dilation = _spread(strides, dims), _spread(dilation, dims)
    extra = _spread(output_padding, dims)
    before, after = _split(padding, dims)
    window = w.shape[2:]
    full = [
        (x.shape[2 + d] - 1) * strides[d] + dilation[d] * (window[d] - 1) + 1 + extra[d]
        for d in range(dims)
    ]
    out = np.zeros((x.shape[0], groups, w.shape[1], *full), _wide(x, w))
    grouped_x = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    grouped_w = w.reshape(groups, -1, *w.shape[1:])
    for at in itertools.product(*map(range, window)):
        cut = tuple(
            slice(
                at[d] * dilation[d],
                at[d] * dilation[d] + strides[d] * (x.shape[2 + d] - 1) + 1,
                strides[d],
            )
            for d in range(dims)
        )
        out[(..., *cut)] += np.einsum("ngi...,gio->ngo...", grouped_x, grouped_w[(..., *at)])
    kept = tuple(slice(before[d], full[d] - after[d]) for d in range(dims))
    return out[(..., *kept)].reshape(x.shape[0], -1, *(s.stop - s.start for s in kept))


def window_sums(x, window, *, strides=1, padding=0) -> np.ndarray:
    """Sum of each window of (N, C, *space)."""
    channels = x.shape[1]
    ones = np.ones((channels, 1, *window), "int64")
    return convolve(x, ones, strides=strides, padding=padding, groups=channels)


def _wide(*arrays) -> np.dtype:
    return np.result_type("int64", *arrays)


def _spread(value, dims) -> list[int]:
    return [value] * dims if np.isscalar(value) else list(value)


def _split(padding, dims) -> tuple[list[int], list[int]]:
    both = _spread(padding, 2 * dims)
    return both[:dims], both[dims:]
