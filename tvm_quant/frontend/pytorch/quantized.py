"""Programs that `torch.export` quantization (PT2E) made: their quantizers.

    quantize_per_tensor(x, scale, zero_point, low, high, dtype)  codes by round(x * (1 / scale))
    dequantize_per_tensor(codes, ...)                            simulated_quantize(x)

A pair of the two is one quantizer of the annotated graph, a dequantize of a constant is one of a
weight. Codes that are used otherwise (as an output, moved as integers) stay codes.

Source: torch/ao/quantization/fx/_decomposed.py, whose operators torchao's pt2e flow writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import fx
from tvm import relax

from tvm_quant.errors import FrontendError
from tvm_quant.ir import constant
from tvm_quant.op import (
    Convention,
    Formula,
    Kind,
    QuantSpec,
    quantize,
    simulated_quantize,
)

Array = npt.NDArray[Any]

#: dtype of codes -> (bits, signed)
_TYPES = {
    torch.uint8: (8, False),
    torch.int8: (8, True),
    torch.uint16: (16, False),
    torch.int16: (16, True),
    torch.int32: (32, True),
}


def register_operators() -> None:
    """Make torch know the operators, so that a saved program that calls them can be read."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Scale, zero point and grid of a quantizer; arrays of the rank of the data, or ()."""

    scale: Array
    zero_point: Array
    spec: QuantSpec

    def same_as(self, other: Grid) -> bool:
        """Whether both are one grid."""
        return (
            self.spec == other.spec
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


@dataclass(frozen=True, kw_only=True)
class _Coded:
    """A tensor behind a quantize: the real data and its grid."""

    data: relax.Expr
    grid: Grid


class Quantizers:
    """Converters of the quantizers of one program.

    Args:
        program: holds the constants.
        environment: what the nodes that are converted already have become.
        builder: returns the block builder.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        environment: Mapping[fx.Node, Any],
        builder: Callable[[], relax.BlockBuilder],
    ):
        self._constants = constants_of(program)
        self._environment = environment
        self._builder = builder
        self._coded: dict[fx.Node, _Coded] = {}
        self._quantizers: dict[fx.Node, relax.Var] = {}

    def converters(self) -> dict[str, Callable[[fx.Node], relax.Var]]:
        """{name of an overload: its converter}."""
        overloads = ("default", "tensor", "tensor2")
        rows: dict[str, Callable[[fx.Node], relax.Var]] = {}
        for granularity in ("per_tensor", "per_channel"):
            for overload in overloads:
                rows[f"quantize_{granularity}.{overload}"] = self._quantize
                rows[f"dequantize_{granularity}.{overload}"] = self._dequantize
        rows["choose_qparams.tensor"] = self._refuse_dynamic
        rows["choose_qparams_symmetric.tensor"] = self._refuse_dynamic
        rows["choose_qparams_per_token.default"] = self._refuse_dynamic
        rows["choose_qparams_per_token_asymmetric.default"] = self._refuse_dynamic
        return rows

    def _quantize(self, node: fx.Node) -> relax.Var:
        data = self._environment[node.args[0]]
        grid = self._grid(node, len(data.ty.shape.values))
        self._coded[node] = _Coded(data=data, grid=grid)
        call = quantize(data, grid.scale, grid.zero_point, grid.spec)
        return self._builder().emit(call, "codes")

    def _dequantize(self, node: fx.Node) -> relax.Var:
        source = node.args[0]
        coded = self._coded.get(source)
        if coded is not None:
            return self._pair(node, source, coded)
        known = self._constants.get(source)
        if known is None:
            return self._codes_to_real(node)
        grid = self._grid(node, known.ndim)
        real = (known.astype("int64") - grid.zero_point) * grid.scale.astype("float64")
        if grid.spec.bits > 16:  # a float32 does not hold these codes
            return self._codes_to_real(node)
        call = simulated_quantize(
            constant(real.astype("float32")),
            grid.scale,
            grid.zero_point,
            spec=grid.spec,
            kind=Kind.WEIGHT,
        )
        return self._builder().emit(call, "weight")

    def _pair(self, node: fx.Node, source: fx.Node, coded: _Coded) -> relax.Var:
        """One quantizer for a quantize, however many dequantize it."""
        grid = self._grid(node, len(coded.data.ty.shape.values))
        if not grid.same_as(coded.grid):
            return self._codes_to_real(node)
        if source not in self._quantizers:
            is_input = source.args[0].op == "placeholder"
            call = simulated_quantize(
                coded.data,
                grid.scale,
                grid.zero_point,
                spec=grid.spec,
                kind=Kind.INPUT if is_input else Kind.ACTIVATION,
                convention=Convention.NEAREST,
            )
            self._quantizers[source] = self._builder().emit(call, "quantized")
        return self._quantizers[source]

    def _codes_to_real(self, node: fx.Node) -> relax.Var:
        codes = self._environment[node.args[0]]
        rank = len(codes.ty.shape.values)
        grid = self._grid(node, rank)
        axis = -1 if grid.spec.axis is None else grid.spec.axis
        scale, zero_point = (
            constant(array.reshape(-1) if array.size > 1 else array.reshape(()))
            for array in (grid.scale, grid.zero_point.astype(grid.spec.dtype))
        )
        call = relax.op.dequantize(codes, scale, zero_point, axis=axis)
        return self._builder().emit(call, "real")

    def _grid(self, node: fx.Node, rank: int) -> Grid:
        """The grid of a call: (data, scale, zero point[, axis], low, high, dtype)."""
        values = list(node.args[1:])
        values += [node.kwargs[name] for name in _REST if name in node.kwargs]
        per_channel = "per_channel" in str(node.target)
        scale, zero_point = (self._value(node, value) for value in values[:2])
        _check_scale(node, scale)
        axis = int(values.pop(2)) % rank if per_channel else None
        low, high, dtype = int(values[2]), int(values[3]), values[4]
        if dtype not in _TYPES:
            raise FrontendError(
                f"FX node '{node.name}' has codes of type {dtype}; expected one of "
                f"{', '.join(map(str, _TYPES))}. Quantize the program with an integer type."
            )
        bits, signed = _TYPES[dtype]
        shape = [1] * rank if per_channel else []
        if axis is not None:
            shape[axis] = -1
        full = QuantSpec(bits=bits, signed=signed)
        spec = QuantSpec(
            bits=bits,
            signed=signed,
            symmetric=not zero_point.any(),
            axis=axis,
            low=None if low == full.qmin else low,
            high=None if high == full.qmax else high,
            formula=Formula.RECIPROCAL,
            reciprocal=1 / float(scale) if isinstance(values[0], float) else None,
        )
        return Grid(
            scale=scale.astype("float32").reshape(shape),
            zero_point=np.broadcast_to(zero_point, scale.shape).astype("int32").reshape(shape),
            spec=spec,
        )

    def _value(self, node: fx.Node, value: Any) -> Array:
        """A parameter of a quantizer that is known; no zero points are zero."""
        if value is None:
            return np.zeros((), "int32")
        if not isinstance(value, fx.Node):
            return np.asarray(value)
        known = self._constants.get(value)
        if known is None:
            raise FrontendError(
                f"FX node '{node.name}' computes its scale or zero point at run time (by "
                f"'{value.name}'); expected constants. Quantize with is_dynamic=False."
            )
        return known

    def _refuse_dynamic(self, node: fx.Node) -> relax.Var:
        raise FrontendError(
            f"FX node '{node.name}' chooses a scale at run time ({node.target}); expected a scale "
            "that is calibrated. Quantize with is_dynamic=False."
        )


_REST = ("axis", "quant_min", "quant_max", "dtype")


def _check_scale(node: fx.Node, scale: Array) -> None:
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise FrontendError(
            f"FX node '{node.name}' has scales from {scale.min()} to {scale.max()}; expected "
            "positive numbers. The observer saw no data: calibrate before convert_pt2e."
        )


def constants_of(program: torch.export.ExportedProgram) -> dict[fx.Node, Array]:
    """The values of parameters, buffers and lifted constants, by their placeholder."""
    tensors: dict[str, Any] = {**program.state_dict, **program.constants}
    signature = program.graph_signature
    targets = {
        spec.arg.name: spec.target for spec in signature.input_specs if spec.target is not None
    }
    found = {}
    for node in program.graph.nodes:
        tensor = tensors.get(targets.get(node.name, "")) if node.op == "placeholder" else None
        if isinstance(tensor, torch.Tensor):
            found[node] = tensor.detach().cpu().numpy()
    return found
