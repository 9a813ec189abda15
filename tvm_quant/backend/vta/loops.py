"""The indices that the loops of a GEMM or ALU instruction go through."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import VtaConfig
from tvm_quant.backend.vta.isa import Loop, unpack_micro_ops

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Indices:
    """dst, src and wgt of every step, int64 (steps,), in the order in which they run."""

    dst: Array
    src: Array
    wgt: Array

    @functools.cached_property
    def distinct(self) -> bool:
        """Whether no dst is written twice."""
        return len(np.unique(self.dst)) == len(self.dst)


@dataclass(frozen=True)
class Product:
    """Sums of products that share operands: acc[dst] += inp[src] @ wgt.

    Attributes:
        src: (D, n); wgt: (n, G); dst: (D, G), all distinct.
    """

    src: Array
    wgt: Array
    dst: Array


def indices(config: VtaConfig, loop: Loop, micro_ops: Array) -> Indices:
    """All steps of an instruction with these micro-ops, uint32."""
    factors = (
        (loop.dst_factor_out, loop.dst_factor_in),
        (loop.src_factor_out, loop.src_factor_in),
        (getattr(loop, "wgt_factor_out", 0), getattr(loop, "wgt_factor_in", 0)),
    )
    return _indices(config, micro_ops.tobytes(), loop.iter_out, loop.iter_in, factors)


def products(found: Indices) -> tuple[Product, ...]:
    """The steps of a GEMM as few matrix products; their order doesn't matter."""
    if "products" not in found.__dict__:
        found.__dict__["products"] = tuple(_products(found))
    return found.__dict__["products"]  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=512)
def _indices(
    config: VtaConfig, micro_ops: bytes, outer: int, inner: int, factors: tuple[Any, ...]
) -> Indices:
    parts = unpack_micro_ops(config, np.frombuffer(micro_ops, np.uint32))
    y, x = np.arange(outer)[:, None, None], np.arange(inner)[:, None]
    return Indices(
        *(
            (part + y * out + x * each).ravel()
            for part, (out, each) in zip(parts, factors, strict=True)
        )
    )


def _products(found: Indices) -> list[Product]:
    order = np.lexsort((found.src, found.wgt, found.dst))
    dst, src, wgt = found.dst[order], found.src[order], found.wgt[order]
    unique, starts, counts = np.unique(dst, return_index=True, return_counts=True)
    result: list[Product] = []
    for count in np.unique(counts):
        rows = counts == count
        places = starts[rows][:, None] + np.arange(count)
        result += _merged(unique[rows], src[places], wgt[places])
    return result


def _merged(dst: Array, src: Array, wgt: Array) -> list[Product]:
    sources, source_of = np.unique(src, axis=0, return_inverse=True)
    weights, weight_of = np.unique(wgt, axis=0, return_inverse=True)
    columns: dict[bytes, list[tuple[int, Array]]] = {}
    for weight in range(len(weights)):
        members = np.flatnonzero(weight_of.ravel() == weight)
        members = members[np.argsort(source_of.ravel()[members], kind="stable")]
        used = source_of.ravel()[members]
        while len(used):  # dsts with the same operands go to different products
            first = np.r_[True, used[1:] != used[:-1]]
            columns.setdefault(used[first].tobytes(), []).append((weight, dst[members[first]]))
            members, used = members[~first], used[~first]
    return [
        Product(
            sources[np.frombuffer(used, np.int64)],
            weights[[weight for weight, _ in group]].T,
            np.stack([places for _, places in group], axis=1),
        )
        for used, group in columns.items()
    ]
