"""The calibration table: every quantizer of a module, and why the rest stayed in float.

It is read off the calibrated module, the one with `simulated_quantize` calls, and kept in the
artifact as plain JSON, so that it can be read without TVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tvm import IRModule, relax

from tvm_quant.errors import ArtifactError
from tvm_quant.ir import bindings, node_name, op_name, producers
from tvm_quant.ir.bindings import flat_operands
from tvm_quant.ir.reasons import float_reasons
from tvm_quant.ir.signature import main_function
from tvm_quant.op import is_calibrated, is_simulated, kind_of, scale_of, spec_of


@dataclass(frozen=True, kw_only=True)
class QuantizerRow:
    """One input port with its grid, or one call without quantizers of its own.

    Attributes:
        node: name of the call as the model file has it.
        op: operator, such as "relax.nn.conv2d".
        port: operand, counted with tuples flattened; None for a call without quantizers.
        tensor: name of the node or input that the port reads, or "constant".
        kind: "input", "weight", "activation" or "bias".
        grid: bits, sign and granularity in short form.
        scale: step of the grid, > 0; one value, or one per channel. None before calibration.
        zero_point: code of 0.0; one value, or one per channel.
        low, high: smallest and largest value the grid holds (over all channels).
        reason: why the call stays in float; None if it does not.
    """

    node: str
    op: str
    port: int | None = None
    tensor: str | None = None
    kind: str | None = None
    grid: str | None = None
    scale: list[float] | None = None
    zero_point: list[int] | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, as plain values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QuantizerRow:
        """Inverse of `to_dict`.

        Raises:
            ArtifactError: fields that this version does not know.
        """
        try:
            return cls(**values)
        except TypeError as error:
            raise ArtifactError(
                f"the calibration table has a row that cannot be read: {error}"
            ) from None


def calibration_table(mod: IRModule) -> list[QuantizerRow]:
    """Rows of an annotated or calibrated module, in execution order.

    A call that only passes on the integers it reads (max-pool, reshape, ...) has one row without
    port and without reason.
    """
    func = main_function(mod)
    reader = _Reader(func)
    return [
        row
        for binding in bindings(func)
        if isinstance(binding.value, relax.Call) and not is_simulated(binding.value)
        for row in reader.rows(binding)
    ]


class _Reader:
    def __init__(self, func: relax.Function):
        self.func = func
        self.producers = producers(func)
        self.reasons = float_reasons(func)

    def rows(self, binding: relax.VarBinding) -> list[QuantizerRow]:
        operands = [self.producers.get(o, o) for o in flat_operands(binding.value)]
        node = node_name(self.func, binding.var)
        op = op_name(binding.value) or "call"
        found = [
            self._quantizer(node, op, port, operand)
            for port, operand in enumerate(operands)
            if is_simulated(operand)
        ]
        return found or [
            QuantizerRow(node=node, op=op, reason=self.reasons.get(str(binding.var.name)))
        ]

    def _quantizer(self, node: str, op: str, port: int, call: relax.Call) -> QuantizerRow:
        source = call.args[0]
        row = QuantizerRow(
            node=node,
            op=op,
            port=port,
            tensor=node_name(self.func, source) if isinstance(source, relax.Var) else "constant",
            kind=kind_of(call).value,
            grid=str(spec_of(call)),
        )
        return _with_scale(row, call) if is_calibrated(call) else row


def _with_scale(row: QuantizerRow, call: relax.Call) -> QuantizerRow:
    spec = spec_of(call)
    scale, zero_point = (np.atleast_1d(np.squeeze(array)) for array in scale_of(call))
    scale, zero_point = scale.reshape(-1), zero_point.reshape(-1)
    lows = scale.astype(np.float64) * (spec.qmin - zero_point.astype(np.float64))
    highs = scale.astype(np.float64) * (spec.qmax - zero_point.astype(np.float64))
    values = asdict(row) | {
        "scale": [float(step) for step in scale],
        "zero_point": [int(zero) for zero in zero_point],
        "low": float(lows.min()),
        "high": float(highs.max()),
    }
    return QuantizerRow(**values)
