"""From a layer to instructions: one function per kind of layer, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.layer import Add, Convolution, Dense, Layer, MaxPool, Weighted
from tvm_quant.backend.vta.layout import View
from tvm_quant.backend.vta.lower.contraction import contraction
from tvm_quant.backend.vta.lower.diagonal import diagonals
from tvm_quant.backend.vta.lower.epilogue import Epilogue, operations
from tvm_quant.backend.vta.lower.pipeline import Pipeline
from tvm_quant.backend.vta.lower.pool import Pool, emit_pool
from tvm_quant.backend.vta.lower.sums import Sums, emit_sums
from tvm_quant.backend.vta.program import Builder
from tvm_quant.backend.vta.tile import Tile, candidates
from tvm_quant.errors import UnsupportedError

Array = npt.NDArray[Any]
Views = Mapping[str, View]

LARGEST_INPUT, LARGEST_SUM = 128, 2**31 - 1


def lower(
    builder: Builder, layer: Layer, views: Views, *, after: bool, tile: Tile | None = None
) -> None:
    """Append the instructions of a layer.

    Args:
        builder: of the program.
        layer: the layer.
        views: its tensors.
        after: whether another layer stands before it.
        tile: instead of the cheapest that fits.

    Raises:
        UnsupportedError: it does not fit, or its sums can exceed int32.
    """
    pipeline = Pipeline(builder, after=after)
    with builder.layer(layer.name):
        LOWERINGS[type(layer)](builder, pipeline, layer, views, tile)
        pipeline.close()


def _weighted(
    builder: Builder, pipeline: Pipeline, layer: Weighted, views: Views, tile: Tile | None
) -> None:
    channels = layer.out_channels
    products = contraction(builder, layer, views[layer.data])
    terms, largest = [], _largest_products(layer.kernel)
    if layer.residual is not None:
        shifts = layer.residual.shifts(channels)
        terms = [(views[layer.residual.tensor], shifts)]
        largest = largest + (LARGEST_INPUT << shifts.astype(np.int64))
    shift = layer.shifts(channels).astype(np.int64)
    _check_range(layer, largest, layer.biases, shift)
    steps = operations(
        layer.biases.astype(np.int64), shift, layer.low, layer.high, extended=builder.extended
    )
    sums = Sums(
        name=layer.name,
        output=views[layer.output],
        diagonals=diagonals(builder, layer.name, terms) if terms else (),
        contraction=products,
        epilogue=Epilogue(builder, layer.name, steps),
    )
    _emit(builder, pipeline, _flat(sums) if products.pointwise else sums, tile)


def _add(builder: Builder, pipeline: Pipeline, layer: Add, views: Views, tile: Tile | None) -> None:
    # What both are shifted left by is taken off the shift of the sum.
    common = min(layer.lhs_shift, layer.rhs_shift)
    counts = (layer.lhs_shift - common, layer.rhs_shift - common)
    lanes = builder.config.block
    shift = layer.shifts(1).astype(np.int64) - common
    largest = np.array([sum(LARGEST_INPUT << count for count in counts)])
    _check_range(layer, largest, np.zeros(1, np.int64), shift)
    terms = [
        (views[name], np.full(lanes, count))
        for name, count in zip(layer.inputs, counts, strict=True)
    ]
    planes = views[layer.output].planes
    steps = operations(
        np.zeros(planes * lanes, np.int64),
        np.repeat(shift, planes * lanes),
        layer.low,
        layer.high,
        extended=builder.extended,
    )
    sums = Sums(
        name=layer.name,
        output=views[layer.output],
        diagonals=diagonals(builder, layer.name, terms),
        contraction=None,
        epilogue=Epilogue(builder, layer.name, steps),
    )
    _emit(builder, pipeline, _flat(sums), tile)


def _max_pool(
    builder: Builder, pipeline: Pipeline, layer: MaxPool, views: Views, tile: Tile | None
) -> None:
    ones = np.zeros(builder.config.block, np.int64)
    (copy,) = diagonals(builder, layer.name, [(views[layer.data], ones)])
    pool = Pool(layer=layer, output=views[layer.output], copy=copy)
    found = tile or candidates(builder.config, pool.work, extended=builder.extended)[0]
    emit_pool(builder, pipeline, pool, found)


LOWERINGS: dict[type[Layer], Callable[[Builder, Pipeline, Any, Views, Tile | None], None]] = {
    Convolution: _weighted,
    Dense: _weighted,
    Add: _add,
    MaxPool: _max_pool,
}


def _emit(builder: Builder, pipeline: Pipeline, sums: Sums, tile: Tile | None) -> None:
    found = tile or candidates(builder.config, sums.work, extended=builder.extended)[0]
    emit_sums(builder, pipeline, sums, found)


def _flat(sums: Sums) -> Sums:
    """The same sums with all positions in one row."""
    products = sums.contraction
    return replace(
        sums,
        output=sums.output.flat,
        diagonals=tuple(replace(each, view=each.view.flat) for each in sums.diagonals),
        contraction=products and replace(products, view=products.view.flat),
    )


def _largest_products(kernel: Array) -> Array:
    """Bound of the magnitude of each channel's sum of products, int64 (O,)."""
    magnitudes = np.abs(kernel.astype(np.int64)).reshape(len(kernel), -1)
    return np.asarray(LARGEST_INPUT * magnitudes.sum(axis=1))


def _check_range(layer: Layer, largest: Array, bias: Array, shift: Array) -> None:
    half = np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 0)
    bound = (largest + np.abs(bias.astype(np.int64)) + half) << np.maximum(-shift, 0)
    if bound.max() > LARGEST_SUM:
        channel = int(bound.argmax())
        raise UnsupportedError(
            f"VTA layer '{layer.name}': sums of channel {channel} can reach {bound.max()}, "
            f"expected at most {LARGEST_SUM} (int32): keep the layer on the CPU."
        )
