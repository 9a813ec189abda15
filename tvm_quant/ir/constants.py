"""Reading constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.runtime import Tensor


def constant_value(expr: relax.Expr) -> npt.NDArray[Any] | None:
    """The array of a constant tensor, or None if `expr` is not one."""
    if not isinstance(expr, GenericConst) or not isinstance(expr.value, Tensor):
        return None
    return np.asarray(expr.value.numpy())


def constant(array: npt.ArrayLike) -> relax.Expr:
    """A constant tensor of the array's own dtype.

    `relax.const` without a dtype narrows 64-bit arrays to 32 bits.
    """
    array = np.asarray(array)
    return relax.const(array, str(array.dtype))
