"""How real numbers become whole ones, in NumPy and in TE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import te, tirx

Array = npt.NDArray[Any]


class Rounding(str, Enum):
    """What to do with a fraction.

    The names are those of QONNX and of java.math.RoundingMode, which know no `half_ceil`: `up` and
    `down` are away from zero and toward zero.
    """

    HALF_EVEN = "half_even"  # to nearest, ties to even
    HALF_UP = "half_up"  # to nearest, ties away from zero
    HALF_DOWN = "half_down"  # to nearest, ties toward zero
    HALF_CEIL = "half_ceil"  # to nearest, ties toward +infinity: adding half and shifting right
    UP = "up"  # away from zero
    DOWN = "down"  # toward zero
    CEIL = "ceil"
    FLOOR = "floor"
    SIGN = "sign"  # 1 from 0 on, else -1: the two codes of a bipolar tensor


@dataclass(frozen=True, kw_only=True)
class _Row:
    numpy: Callable[[Array], Array]
    te: Callable[[tirx.PrimExpr], tirx.PrimExpr]


def round_numpy(values: npt.ArrayLike, rounding: Rounding) -> Array:
    """Round each element; floats of the type of `values`.

    >>> round_numpy([2.5, -2.5, -0.2], Rounding.HALF_UP).tolist()
    [3.0, -3.0, -0.0]
    """
    return _ROWS[rounding].numpy(np.asarray(values))


def round_te(value: tirx.PrimExpr, rounding: Rounding) -> tirx.PrimExpr:
    """Round a scalar float32 expression."""
    return _ROWS[rounding].te(value)


def _from_zero_numpy(values: Array, reaches: Callable[[Array], Array]) -> Array:
    """One step away from zero, past the whole part, where the fraction `reaches` far enough."""
    whole = np.trunc(values)
    with np.errstate(invalid="ignore"):  # infinity has no fraction
        return np.asarray(whole + np.sign(values) * reaches(np.abs(values - whole)))


def _from_zero_te(
    value: tirx.PrimExpr, reaches: Callable[[tirx.PrimExpr], tirx.PrimExpr]
) -> tirx.PrimExpr:
    whole = te.trunc(value)
    zero, one = te.const(0.0, "float32"), te.const(1.0, "float32")
    step = tirx.Select(value < zero, -one, one)
    return whole + tirx.Select(reaches(te.abs(value - whole)), step, zero)


def _half_ceil_numpy(values: Array) -> Array:
    whole = np.floor(values)
    with np.errstate(invalid="ignore"):  # infinity has no fraction
        return np.asarray(whole + (values - whole >= 0.5))


_HALF = te.const(0.5, "float32")
_ZERO = te.const(0.0, "float32")
_ONE = te.const(1.0, "float32")

_ROWS: dict[Rounding, _Row] = {
    Rounding.HALF_EVEN: _Row(numpy=np.round, te=te.round),
    Rounding.HALF_UP: _Row(
        numpy=lambda x: _from_zero_numpy(x, lambda fraction: fraction >= 0.5),
        te=lambda x: _from_zero_te(x, lambda fraction: fraction >= _HALF),
    ),
    Rounding.HALF_DOWN: _Row(
        numpy=lambda x: _from_zero_numpy(x, lambda fraction: fraction > 0.5),
        te=lambda x: _from_zero_te(x, lambda fraction: fraction > _HALF),
    ),
    Rounding.HALF_CEIL: _Row(
        numpy=_half_ceil_numpy,
        te=lambda x: te.floor(x) + tirx.Select(x - te.floor(x) >= _HALF, _ONE, _ZERO),
    ),
    Rounding.UP: _Row(
        numpy=lambda x: _from_zero_numpy(x, lambda fraction: fraction > 0),
        te=lambda x: _from_zero_te(x, lambda fraction: fraction > _ZERO),
    ),
    Rounding.DOWN: _Row(numpy=np.trunc, te=te.trunc),
    Rounding.CEIL: _Row(numpy=np.ceil, te=te.ceil),
    Rounding.FLOOR: _Row(numpy=np.floor, te=te.floor),
    Rounding.SIGN: _Row(
        numpy=lambda x: np.where(x >= 0, np.ones_like(x), -np.ones_like(x)),
        te=lambda x: tirx.Select(x >= _ZERO, te.const(1.0, "float32"), te.const(-1.0, "float32")),
    ),
}
