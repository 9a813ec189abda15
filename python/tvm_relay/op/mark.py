"""Annotations: marks that Relay's passes left behind; what they mark is the value itself."""

from __future__ import annotations

from tvm import relax

from tvm_relay.op.base import emit, relay_op


@relay_op("annotation.stop_fusion")
def stop_fusion(data: relax.Expr, /) -> relax.Expr:
    return data


@relay_op("annotation.cast_hint")
def cast_hint(data: relax.Expr, /, dtype: str) -> relax.Expr:
    return data


@relay_op("annotation.checkpoint")
def checkpoint(data: relax.Expr, /) -> relax.Expr:
    return data


@relay_op("annotation.compiler_begin")
def compiler_begin(data: relax.Expr, /, compiler: str) -> relax.Expr:
    return data


@relay_op("annotation.compiler_end")
def compiler_end(data: relax.Expr, /, compiler: str) -> relax.Expr:
    return data


@relay_op("on_device")
def on_device(
    data: relax.Expr,
    /,
    virtual_device: object = None,
    constrain_result: bool = False,
    constrain_body: bool = True,
) -> relax.Expr:
    return data


@relay_op("relay.op.annotation.simulated_quantize")
def simulated_quantize(
    data: relax.Expr,
    dom_scale: relax.Expr,
    clip_min: relax.Expr,
    clip_max: relax.Expr,
    /,
    kind: int = 1,
    sign: bool = True,
    rounding: str = "round",
) -> relax.Expr:
    """round(clip(data / dom_scale)) * dom_scale in float; of kind 0, the identity."""
    if kind == 0:
        return data
    steps = emit(relax.op.divide(data, dom_scale))
    inside = emit(relax.op.minimum(emit(relax.op.maximum(steps, clip_min)), clip_max))
    return relax.op.multiply(emit(relax.op.round(inside)), dom_scale)
