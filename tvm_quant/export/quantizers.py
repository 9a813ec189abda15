"""Quantizers as nodes of ONNX (`QuantizeLinear`, `DequantizeLinear`) or QONNX (`Quant`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tvm_quant.errors import UnsupportedError
from tvm_quant.export.graph import Array, Graph
from tvm_quant.op import Formula, QuantSpec, Rounding, quantize_numpy

QONNX_DOMAIN = "qonnx.custom_op.general"


@dataclass(frozen=True, kw_only=True)
class Quantizer:
    """A quantizer that is written.

    Attributes:
        name: of its variable.
        spec: the grid.
        scale, zero_point: float32 and int32, shape () or of data's rank with ones.
    """

    name: str
    spec: QuantSpec
    scale: Array
    zero_point: Array

    @property
    def axis(self) -> int | None:
        """The channel axis; None for one scale.

        Raises:
            UnsupportedError: scales along several axes.
        """
        axes = [axis for axis, size in enumerate(self.scale.shape) if size != 1]
        if len(axes) > 1:
            raise UnsupportedError(
                f"Quantizer '{self.name}' has scales of shape {self.scale.shape}; ONNX has one "
                "axis of scales. Quantize this layer per tensor, or leave it in float."
            )
        return axes[0] if axes else None


@dataclass(frozen=True, kw_only=True)
class Format:
    """How quantizers are written.

    Attributes:
        activation: a quantizer of a tensor that is computed, (graph, tensor, quantizer) -> tensor.
        constant: of a constant, (graph, float32 array, quantizer) -> tensor.
        integer_biases: whether biases are integers, too.
    """

    activation: Callable[[Graph, str, Quantizer], str]
    constant: Callable[[Graph, Array, Quantizer], str]
    integer_biases: bool


def _qdq(graph: Graph, tensor: str, quantizer: Quantizer) -> str:
    _check_nearest(quantizer)
    parameters, axis = _parameters(graph, quantizer)
    name, spec = quantizer.name, quantizer.spec
    codes = graph.add("QuantizeLinear", [tensor, *parameters], f"{name}_codes", axis=axis)
    limits = np.iinfo(spec.dtype)
    if (spec.qmin, spec.qmax) != (limits.min, limits.max):
        bounds = [
            graph.constant(np.asarray(end, spec.dtype), f"{name}_{side}")
            for side, end in (("min", spec.qmin), ("max", spec.qmax))
        ]
        codes = graph.add("Clip", [codes, *bounds], f"{name}_clipped")
    return graph.add("DequantizeLinear", [codes, *parameters], name, axis=axis)


def _dequantized(graph: Graph, array: Array, quantizer: Quantizer) -> str:
    parameters, axis = _parameters(graph, quantizer)
    codes = quantize_numpy(array, quantizer.scale, quantizer.zero_point, quantizer.spec)
    known = graph.constant(codes, f"{quantizer.name}_codes")
    return graph.add("DequantizeLinear", [known, *parameters], quantizer.name, axis=axis)


def _check_nearest(quantizer: Quantizer) -> None:
    spec = quantizer.spec
    if spec.rounding is not Rounding.HALF_EVEN or spec.formula is Formula.RECIPROCAL:
        raise UnsupportedError(
            f"Quantizer '{quantizer.name}' rounds by '{spec.rounding.value}' and "
            f"'{spec.formula.value}'; QuantizeLinear rounds a quotient to nearest, ties to even. "
            'Write the network with format="qonnx".'
        )


def _parameters(graph: Graph, quantizer: Quantizer) -> tuple[list[str], int | None]:
    axis, name = quantizer.axis, quantizer.name
    shape = () if axis is None else (-1,)
    scale = quantizer.scale.astype("float32").reshape(shape)
    zero = np.broadcast_to(quantizer.zero_point, quantizer.scale.shape).reshape(shape)
    parameters = [
        graph.constant(scale, f"{name}_scale"),
        graph.constant(zero.astype(quantizer.spec.dtype), f"{name}_zero_point"),
    ]
    return parameters, axis


def _quant(graph: Graph, tensor: str, quantizer: Quantizer) -> str:
    name, spec = quantizer.name, quantizer.spec
    narrow = _narrow(quantizer)
    parameters = [
        graph.constant(quantizer.scale.astype("float32"), f"{name}_scale"),
        graph.constant(quantizer.zero_point.astype("float32"), f"{name}_zero_point"),
        graph.constant(np.float32(spec.bits), f"{name}_bits"),
    ]
    return graph.add(
        "Quant",
        [tensor, *parameters],
        name,
        domain=QONNX_DOMAIN,
        signed=int(spec.signed),
        narrow=narrow,
        rounding_mode="ROUND" if spec.rounding is Rounding.HALF_EVEN else spec.rounding.name,
    )


def _narrow(quantizer: Quantizer) -> int:
    """Whether the grid lacks one code of its bits.

    Raises:
        UnsupportedError: it lacks others.
    """
    spec = quantizer.spec
    full = QuantSpec(bits=spec.bits, signed=spec.signed)
    lacks = {0: (full.qmin, full.qmax), 1: (full.qmin + spec.signed, full.qmax - (not spec.signed))}
    for narrow, ends in lacks.items():
        if ends == (spec.qmin, spec.qmax):
            return narrow
    if spec.rounding is Rounding.SIGN:
        return 0
    raise UnsupportedError(
        f"Quantizer '{quantizer.name}' has codes from {spec.qmin} to {spec.qmax}; QONNX knows "
        f"{lacks[0][0]} to {lacks[0][1]} and {lacks[1][0]} to {lacks[1][1]} for its {spec.bits} "
        'bits. Write the network with format="qdq".'
    )


def _quant_constant(graph: Graph, array: Array, quantizer: Quantizer) -> str:
    known = graph.constant(array.astype("float32"), f"{quantizer.name}_float")
    return _quant(graph, known, quantizer)


FORMATS: dict[str, Format] = {
    "qdq": Format(activation=_qdq, constant=_dequantized, integer_biases=True),
    "qonnx": Format(activation=_quant, constant=_quant_constant, integer_biases=False),
}
"""QDQ is what ONNX Runtime and OpenVINO run; QONNX is for tools with grids of any width."""
