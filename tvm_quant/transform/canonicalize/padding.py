"""Explicit zero padding goes into the convolution or average pool behind it."""

from __future__ import annotations

from tvm import relax

from tvm_quant.ir import op_name
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope


def pad_in_convolution(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Padding along spatial axes of a tensor that nothing else reads."""
    folded = _folded(scope, call, str(call.attrs.data_layout))
    if folded is None:
        return None
    data, padding = folded
    return _operator(call)(
        data,
        call.args[1],
        strides=list(call.attrs.strides),
        padding=padding,
        dilation=list(call.attrs.dilation),
        groups=int(call.attrs.groups),
        data_layout=call.attrs.data_layout,
        kernel_layout=call.attrs.kernel_layout,
        out_layout=call.attrs.out_layout,
        out_dtype=call.attrs.out_dtype,
    )


def pad_in_pool(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """The same for an average, which then counts the zeros."""
    counts = bool(call.attrs.count_include_pad) or not any(int(p) for p in call.attrs.padding)
    folded = _folded(scope, call, str(call.attrs.layout))
    if folded is None or not counts or call.attrs.ceil_mode:
        return None
    data, padding = folded
    return _operator(call)(
        data,
        pool_size=list(call.attrs.pool_size),
        strides=list(call.attrs.strides),
        padding=padding,
        dilation=list(call.attrs.dilation),
        count_include_pad=True,
        layout=call.attrs.layout,
        out_layout=call.attrs.out_layout,
    )


def _folded(scope: Scope, call: relax.Call, layout: str) -> tuple[relax.Expr, list[int]] | None:
    """The tensor before padding, and the padding (all begins, then all ends) of both together."""
    pad = scope.value(call.args[0])
    if op_name(pad) != "relax.nn.pad" or not scope.used_once(call.args[0]):
        return None
    if str(pad.attrs.pad_mode) != "constant" or float(pad.attrs.pad_value) != 0.0:
        return None
    widths = [int(w) for w in pad.attrs.pad_width]
    pairs = dict(zip(layout, zip(widths[::2], widths[1::2], strict=True), strict=True))
    if any(pairs.pop("N")) or any(pairs.pop("C")):
        return None
    added = [begin for begin, _ in pairs.values()] + [end for _, end in pairs.values()]
    own = [int(p) for p in call.attrs.padding]
    return pad.args[0], [a + b for a, b in zip(own, added, strict=True)]


def _operator(call: relax.Call):  # type: ignore[no-untyped-def]
    return getattr(relax.op.nn, str(call.op.name).removeprefix("relax.nn."))


RULES = (
    Rule(operators=("nn.conv1d", "nn.conv2d", "nn.conv3d"), rewrite=pad_in_convolution),
    Rule(operators=("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d"), rewrite=pad_in_pool),
)
