"""What TVM's `ConvertLayout` asks of an operator: in which layouts it takes its operands.

The answer is an object that Python cannot make. Operators of TVM that act on each value alone, of
one tensor or two, give it for ours.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

_LIKE = ("relax.nn.relu", "relax.multiply")  # by the number of tensors, less one


def elementwise_layout(call: relax.Call, desired: Any, layouts: Any) -> Any:
    """Any layout of the data, which a second operand of its rank follows.

    Where more operands than the second are tensors, the data keeps its first layout.
    """
    rank, *others = (int(arg.ty.ndim) for arg in call.args)
    if any(others[1:]) or (others and others[0] not in (0, rank)):
        return first_layout(call, desired, layouts)
    return _infer(_LIKE[any(others)])(call, desired, layouts)


def first_layout(call: relax.Call, desired: Any, _layouts: Any) -> Any:
    """The layout that the data had before any was converted."""
    return _infer(_LIKE[0])(call, desired, {})


def _infer(name: str) -> Any:
    return tvm.ir.Op.get(name).get_attr("FRelaxInferLayout")
