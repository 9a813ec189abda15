"""Who reads the channels of a quantized tensor, and where a factor per channel can be undone.

contraction   in its weight
sum, product  before its port: a factor on codes is free, it only changes their scale
mean          after it, if it averages no channels
max pool      further down: it commutes with positive factors
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from tvm_quant.ir import constant_value, op_name
from tvm_quant.op import Role, contraction_axes, is_simulated, role_of, spec_of
from tvm_quant.transform.channel_scale import ElementReader, Reader, WeightReader

Values = Mapping[relax.Var, Any]
Uses = Mapping[relax.Var, Sequence[tuple[relax.Var | None, int]]]

#: Operators that keep channels apart and commute with a positive factor per channel.
CHANNELWISE = frozenset(
    {"relax.nn.max_pool1d", "relax.nn.max_pool2d", "relax.nn.max_pool3d", "relax.image.resize2d"}
)


@dataclass(kw_only=True)
class Readers:
    """Everything that reads a tensor.

    Attributes:
        weights: {weight quantizer: the contraction that reads the tensor}.
        before: (call, port) that needs the factors undone before it.
        after: {mean: channel axis of its result} that needs them undone after it.
    """

    weights: dict[relax.Var, WeightReader] = field(default_factory=dict)
    before: list[tuple[relax.Var, int]] = field(default_factory=list)
    after: dict[relax.Var, int] = field(default_factory=dict)

    @property
    def errors(self) -> list[Reader]:
        """One term of the predicted error for each reader."""
        plain = [ElementReader()] * (len(self.before) + len(self.after))
        return [*self.weights.values(), *plain]


def find_readers(var: relax.Var, axis: int, values: Values, uses: Uses) -> Readers | None:
    """The readers of `var`, or None if one of them cannot undo a factor.

    Args:
        var: a tensor of codes.
        axis: its channel axis.
        values: value of each variable.
        uses: uses of each variable.
    """
    readers = Readers()
    return readers if _collect(var, axis, values, uses, readers) else None


def _collect(var: relax.Var, axis: int, values: Values, uses: Uses, readers: Readers) -> bool:
    return all(
        user in values and _add_reader(user, port, axis, values, uses, readers)
        for user, port in uses[var]
    )


def _add_reader(
    user: relax.Var, port: int, axis: int, values: Values, uses: Uses, readers: Readers
) -> bool:
    call = values[user]
    role = role_of(call)
    if op_name(call) in CHANNELWISE:
        return _collect(user, axis, values, uses, readers)
    if role in (Role.SUM, Role.PRODUCT):
        readers.before.append((user, port))
        return all(isinstance(arg, relax.Var) for arg in call.args)
    if role is Role.MEAN:
        result_axis = _axis_after_mean(call, axis)
        if result_axis is not None:
            readers.after[user] = result_axis
        return result_axis is not None
    reader = _weight_reader(call, port, axis, values, uses)
    if reader is not None:
        readers.weights[call.args[1]] = reader
    return reader is not None


def _weight_reader(
    call: relax.Expr, port: int, axis: int, values: Values, uses: Uses
) -> WeightReader | None:
    if role_of(call) is not Role.CONTRACTION or port != 0:
        return None
    axes = contraction_axes(call)
    quantizer = values.get(call.args[1])
    if axes.data != axis or not is_simulated(quantizer) or len(uses[call.args[1]]) != 1:
        return None
    weight = constant_value(quantizer.args[0])
    if weight is None:
        return None
    spec = spec_of(quantizer)
    return WeightReader(
        weight=weight, axes=axes, levels=spec.qmax, per_channel=spec.axis is not None
    )


def _axis_after_mean(call: relax.Call, axis: int) -> int | None:
    """Where the channels stand after an average, or None if they are averaged."""
    if op_name(call) != "relax.mean":
        return axis
    if call.attrs.axis is None:
        return None
    rank = int(call.args[0].ty.ndim)
    reduced = {int(a) % rank for a in call.attrs.axis}
    if axis in reduced:
        return None
    return axis if call.attrs.keepdims else axis - sum(a < axis for a in reduced)
