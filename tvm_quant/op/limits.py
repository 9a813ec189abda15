"""Calls whose attributes or shapes leave them without an integer form, each with the reason."""

from __future__ import annotations

from tvm import relax

from tvm_quant.ir import tensor_shape

NEW_VALUES = "these attributes compute new values"


def limit_of_resize(call: relax.Call) -> str | None:
    """Only the nearest neighbour moves elements."""
    return None if str(call.attrs.method) == "nearest_neighbor" else NEW_VALUES


def limit_of_pad(call: relax.Call) -> str | None:
    """Reflection and the like move elements; of constants only 0 has a code on every grid."""
    zeros = str(call.attrs.pad_mode) != "constant" or float(call.attrs.pad_value) == 0.0
    return None if zeros else NEW_VALUES


def limit_of_mean(call: relax.Call) -> str | None:
    """The count has to be known."""
    shape = tensor_shape(call.args[0]) or ()
    axes = range(len(shape)) if call.attrs.axis is None else [int(a) for a in call.attrs.axis]
    return "averages over a dynamic axis" if any(shape[a] is None for a in axes) else None


def limit_of_adaptive_pool(call: relax.Call) -> str | None:
    """To one cell, of a known number of elements."""
    shape = tensor_shape(call.args[0]) or ()
    sizes = [shape[axis] for axis, x in enumerate(str(call.attrs.layout)) if x not in "NC"]
    if not call.attrs.output_size or any(int(side) != 1 for side in call.attrs.output_size):
        return "adaptive pooling to more than one cell"
    return "averages over a dynamic axis" if None in sizes else None


def limit_of_average_pool(call: relax.Call) -> str | None:
    """Whole windows of a known count, over a known number of channels."""
    attrs = call.attrs
    shape = dict(zip(str(attrs.layout), tensor_shape(call.args[0]) or (), strict=True))
    if bool(attrs.ceil_mode):
        return "average pooling with ceil_mode"
    if any(int(d) != 1 for d in attrs.dilation):
        return "average pooling with dilation"
    if shape.pop("C") is None:
        return "average pooling of a dynamic number of channels"
    del shape["N"]
    uneven = not attrs.count_include_pad and any(int(p) for p in attrs.padding)
    if uneven and None in shape.values():
        return "average pooling that leaves out padding of a dynamic size"
    return None
