"""Registering a Relax operator from Python alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import _ffi_api


def register_op(
    name: str,
    doc: str,
    arguments: Sequence[tuple[str, str]],
    infer: Callable[[relax.Call, relax.BlockBuilder], relax.Type],
    *,
    variadic: bool = False,
    layout: Callable[[relax.Call, Any, Any], Any] | None = None,
) -> tvm.ir.Op:
    """Register a pure Relax op and return it.

    Args:
        name: full name, such as "tvm_quant.requantize".
        doc: one line.
        arguments: (name, description) of each operand, all tensors.
        infer: type of a call, given the call and the block builder.
        variadic: trailing operands may be missing.
        layout: for `ConvertLayout`, see `tvm_quant.op.layout`; without, layouts end at the op.
    """
    _ffi_api.RegisterOp(name, doc)
    op = tvm.ir.Op.get(name)
    op.set_num_inputs(-1 if variadic else len(arguments))
    for argument, description in arguments:
        op.add_argument(argument, "Tensor", description)
    tvm.ir.register_op_attr(name, "FInferType", infer)
    tvm.ir.register_op_attr(name, "FPurity", True)
    if layout is not None:
        tvm.ir.register_op_attr(name, "FRelaxInferLayout", layout)
    return op


def dict_attrs(**values: Any) -> tvm.ir.Attrs:
    """Attributes of a call to an op that was registered from Python."""
    return tvm.ir.make_node("ir.DictAttrs", **values)
