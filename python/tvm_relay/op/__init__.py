"""Relay's operators: `OPS` has a row for each, by name; `relay.op.nn.conv2d` makes a call of one.

>>> OPS["clip"].operands, list(OPS["clip"].attributes)
(('a',), ['a_min', 'a_max'])
"""

from __future__ import annotations

from typing import Any

from tvm_relay.expr import Op
from tvm_relay.op import (
    activation,
    conv,
    create,
    dense,
    elementwise,
    mark,
    norm,
    pool,
    quantized,
    reduce,
    resize,
    shape,
)
from tvm_relay.op.base import OPS, REQUIRED, OpRow, row

__all__ = ["OPS", "REQUIRED", "OpRow", "get", "row"]

_FAMILIES = (
    activation,
    conv,
    create,
    dense,
    elementwise,
    mark,
    norm,
    pool,
    quantized,
    reduce,
    resize,
    shape,
)


def get(name: str) -> Op:
    """The operator of that name.

    Raises:
        FrontendError: nobody converts it.
    """
    return Op(row(name).name)


def __getattr__(name: str) -> Any:
    from tvm_relay import namespaces

    return namespaces.lookup(name)
