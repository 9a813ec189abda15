"""What the attributes of a call are, with those that are not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_relay.expr import Call, Op
from tvm_relay.op import OPS, REQUIRED


def all_attributes(call: Call) -> Mapping[str, Any]:
    """Attributes of a call; of an operator with the defaults of its row, and in its order.

    >>> from tvm_relay.expr import const
    >>> all_attributes(Call(Op("nn.softmax"), (const(1.0),)))
    {'axis': -1}
    """
    if not isinstance(call.op, Op) or call.op.name not in OPS:
        return call.attrs
    values = {**OPS[call.op.name].attributes, **call.attrs}
    return {name: value for name, value in values.items() if value is not REQUIRED}
