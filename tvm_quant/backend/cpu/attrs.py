"""Changing a few attributes of a call."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax


def with_attrs(call: relax.Call, args: list[relax.Expr], **changes: Any) -> relax.Call:
    """The same operator on `args`, its attributes as they are but for `changes`."""
    if not changes:
        return relax.Call(call.op, args, call.attrs, call.ty_args)
    info = type(call.attrs).__tvm_ffi_type_info__
    fields = {field.name: getattr(call.attrs, field.name) for field in info.fields} | changes
    attrs = tvm.ir.make_node(info.type_key, **fields)
    return relax.Call(call.op, args, attrs, call.ty_args)
