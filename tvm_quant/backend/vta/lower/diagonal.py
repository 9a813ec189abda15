"""Tensors that are added to sums: products with diagonal weights, powers of two.

A weight is at most 2**6. Larger powers are reached as in Horner's rule: what needs the larger ones
is added first, and the sums are shifted left before the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.layout import View, blocks
from tvm_quant.backend.vta.program import Builder

Array = npt.NDArray[Any]

LARGEST_EXPONENT = 6  # 2**7 is no int8


@dataclass(frozen=True)
class Diagonal:
    """A tensor times a factor per channel, then a left shift of all sums.

    Attributes:
        view: the tensor.
        weights: address of the WGT elements.
        per_block: whether each channel block has weights of its own.
        shift: left shift afterwards.
    """

    view: View
    weights: int
    per_block: bool
    shift: int


def diagonals(builder: Builder, name: str, terms: list[tuple[View, Array]]) -> tuple[Diagonal, ...]:
    """Products and shifts that add up tensors << exponents, int (C,) each, 0 or more."""
    exponents = np.stack([shifts for _, shifts in terms])
    left, found = np.ones(exponents.shape, bool), []
    while left.any():
        base = max(0, int(exponents[left].max()) - LARGEST_EXPONENT)
        taken = left & (exponents >= base)
        left &= ~taken
        found.append((base, taken))
    bases = [base for base, _ in found[1:]] + [0]
    result: list[Diagonal] = []
    for (base, taken), following in zip(found, bases, strict=True):
        members = [index for index in range(len(terms)) if taken[index].any()]
        for index in members:
            factors = np.where(taken[index], 1 << np.maximum(exponents[index] - base, 0), 0)
            address, per_block = _weights(builder, name, factors)
            shift = base - following if index == members[-1] else 0
            result.append(Diagonal(terms[index][0], address, per_block, shift))
    return tuple(result)


def _weights(builder: Builder, name: str, factors: Array) -> tuple[int, bool]:
    lanes = builder.config.block
    same = bool((factors == factors[0]).all())
    count = 1 if same else blocks(len(factors), lanes)
    padded = np.zeros(count * lanes, np.int8)
    padded[:] = factors[0] if same else 0
    if not same:
        padded[: len(factors)] = factors
    elements = padded.reshape(count, lanes, 1) * np.eye(lanes, dtype=np.int8)
    place = builder.constant(f"{name}: factors", elements)
    return builder.address(place, Memory.WGT), not same
