"""Operators of a network that is quantized already: in float, with a quantizer on each result.

    x: int8 codes                    x' = R.dequantize(x)
    conv2d(x, w, b) -> y: int8       w' = simulated_quantize(real weights), b' = R.dequantize(b)
                                     y' = simulated_quantize(R.nn.conv2d(x', w') + b')
    result y                         R.quantize(y')

A tensor stands in the table of expressions as its real values. So an operator is converted as if
the network were one in float, by the same converter, and the parameters of its result become the
quantizer: what its kernel does with integers is for `Realize` to say, by the convention that stands
in the quantizer. Activations that are fused into an operator become bounds of the quantizer, in
codes, as they are for TFLite's kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import (
    TensorWrapper,
    get_pad_value,
    get_tensor_name,
)

from tvm_quant.errors import FrontendError, UnsupportedError
from tvm_quant.frontend.tflite.converter import Converter
from tvm_quant.frontend.tflite.grids import Grid, grid_of, tensor_name
from tvm_quant.frontend.tflite.kernels import KernelSet
from tvm_quant.frontend.tflite.verify import LONGEST_AXIS
from tvm_quant.ir import constant, tensor_shape
from tvm_quant.op import Kind, QuantSpec, quantize_numpy, simulated_quantize

Array = npt.NDArray[Any]
R = relax.op


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Where an operator with weights has its tensors."""

    data: int
    weight: int
    bias: int


SLOTS = {
    "CONV_2D": Slots(data=0, weight=1, bias=2),
    "DEPTHWISE_CONV_2D": Slots(data=0, weight=1, bias=2),
    "FULLY_CONNECTED": Slots(data=0, weight=1, bias=2),
    "TRANSPOSE_CONV": Slots(data=2, weight=1, bias=3),
}

#: Types that are codes where an operator has quantized tensors.
CODES = ("int8", "uint8", "int16")

#: Operators whose converter means the same of real values: all of their operands go through the
#: table of expressions, and their results are described by one grid.
QUANTIZED_OPERATORS = frozenset(
    (
        "ABS",
        "ADD",
        "ARG_MAX",
        "ARG_MIN",
        "AVERAGE_POOL_2D",
        "BROADCAST_TO",
        "CONCATENATION",
        "CONV_2D",
        "COS",
        "DEPTHWISE_CONV_2D",
        "DEPTH_TO_SPACE",
        "DEQUANTIZE",
        "DIV",
        "ELU",
        "EQUAL",
        "EXP",
        "EXPAND_DIMS",
        "FULLY_CONNECTED",
        "GATHER",
        "GELU",
        "GREATER",
        "GREATER_EQUAL",
        "HARD_SWISH",
        "LEAKY_RELU",
        "LESS",
        "LESS_EQUAL",
        "LOG",
        "LOGISTIC",
        "LOG_SOFTMAX",
        "MAXIMUM",
        "MAX_POOL_2D",
        "MEAN",
        "MINIMUM",
        "MIRROR_PAD",
        "MUL",
        "NEG",
        "NOT_EQUAL",
        "PACK",
        "PAD",
        "PADV2",
        "PRELU",
        "QUANTIZE",
        "REDUCE_MAX",
        "REDUCE_MIN",
        "RELU",
        "RELU6",
        "RELU_N1_TO_1",
        "RESHAPE",
        "RESIZE_BILINEAR",
        "RESIZE_NEAREST_NEIGHBOR",
        "REVERSE_V2",
        "RSQRT",
        "SHAPE",
        "SIN",
        "SLICE",
        "SOFTMAX",
        "SPACE_TO_DEPTH",
        "SPLIT",
        "SPLIT_V",
        "SQRT",
        "SQUARE",
        "SQUARED_DIFFERENCE",
        "SQUEEZE",
        "STRIDED_SLICE",
        "SUB",
        "SUM",
        "TANH",
        "TILE",
        "TRANSPOSE",
        "TRANSPOSE_CONV",
        "UNPACK",
    )
)

#: What a fused activation clamps real values to.
_CLAMPS = {
    tflite.ActivationFunctionType.RELU: (0.0, np.inf),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}


def is_quantized(model: tflite.Model) -> bool:
    """Whether a tensor of the first subgraph has a grid."""
    return bool(_grids(model.Subgraphs(0)))


class QuantizedConverter(Converter):
    """The converter of networks that have tensors with grids."""

    def __init__(self, kernels: KernelSet, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.kernels = kernels
        self.grids = _grids(self.subgraph)
        self._grid_by_name = _by_name(self.subgraph, self.grids)
        self._clamp: tuple[float, float] | None = None
        self._code = ""
        own = {
            "DEQUANTIZE": self._dequantize,
            "EXPAND_DIMS": self._reshape,
            "FULLY_CONNECTED": self._fully_connected,
            "QUANTIZE": self._quantize,
            "SOFTMAX": self._softmax,
            "SQUEEZE": self._reshape,
            "TRANSPOSE_CONV": self._transpose_conv,
        }
        self.convert_map.update(own)

    # What TVM's converter asks ----------------------------------------------------

    def check_unsupported_ops(self) -> None:
        """Refuse operators without conversion, and those whose conversion is one of floats only."""
        super().check_unsupported_ops()
        for op in self._operators():
            code = self.get_op_code_str(op)
            found = [index for index in self._tensors(op) if index in self.grids]
            if found and code not in QUANTIZED_OPERATORS:
                raise UnsupportedError(
                    f"TFLite operator {code} works on the quantized tensor "
                    f"'{self._name(found[0])}'; there is no conversion of it. Keep that operator "
                    "in float, or give the float model and quantize it here."
                )

    def get_tensors(self, tensors_idx_list: Any) -> list[TensorWrapper]:
        """Without parameters: expressions hold real values."""
        found = []
        for index in map(int, self._indices_or_empty(tensors_idx_list)):
            if index < 0:
                found.append(TensorWrapper(index, 0, 0))
                continue
            tensor = self.subgraph.Tensors(index)
            found.append(TensorWrapper(index, tensor, self.model.Buffers(tensor.Buffer())))
        return found

    def get_tensor_value(self, tensor_wrapper: TensorWrapper, is_sparse: bool = False) -> Array:
        """Real values of a constant."""
        value = super().get_tensor_value(tensor_wrapper, is_sparse)
        grid = self._real_grid(tensor_wrapper.tensor_idx)
        return value if grid is None else grid.to_real(value)

    def get_tensor_type_str(self, tensor_type: int) -> str:
        """The type of values; codes are real ones."""
        name = str(super().get_tensor_type_str(tensor_type))
        return "float32" if self._code and name in CODES else name

    def convert_fused_activation_function(
        self, in_expr: relax.Expr, fused_activation_fn: int
    ) -> relax.Expr:
        """A clamp of a quantized result becomes bounds of its quantizer."""
        clamp = _CLAMPS.get(fused_activation_fn)
        if clamp is None or self._clamp is None:
            return super().convert_fused_activation_function(in_expr, fused_activation_fn)
        self._clamp = clamp
        return in_expr

    # One operator after the other -------------------------------------------------

    def convert_op_to_relax(self) -> None:
        """Convert all operators, between the borders of the network."""
        for index in map(int, self.subgraph.InputsAsNumpy()):
            self._enter(index)
        super().convert_op_to_relax()
        for index in map(int, self.subgraph.OutputsAsNumpy()):
            self._leave(index)

    def _convert(self, op: Any, names: list[str]) -> relax.Expr | None:
        self._code = self.get_op_code_str(op)
        self._stage(op)
        grids = [self.grids.get(int(index)) for index in op.OutputsAsNumpy()]
        self._clamp = None if grids[0] is None else (-np.inf, np.inf)
        return super()._convert(op, names)

    def _bind(self, result: relax.Expr, names: list[str]) -> list[relax.Expr]:
        return [
            self._quantizer(value, name)
            for value, name in zip(super()._bind(result, names), names, strict=True)
        ]

    def _quantizer(self, value: relax.Expr, name: str) -> relax.Expr:
        if max((size or 0 for size in tensor_shape(value) or ()), default=0) > LONGEST_AXIS:
            raise FrontendError(
                f"Tensor '{name}' would have the shape {tensor_shape(value)}. The file is damaged."
            )
        grid = self._grid_by_name.get(name)
        if grid is None or str(value.ty.dtype) != "float32":
            return value
        rounding, formula = self.kernels.to_codes(self._code)
        spec = replace(grid.spec(), rounding=rounding, formula=formula)
        call = simulated_quantize(
            value,
            grid.scale,
            grid.zero_point,
            spec=_narrowed(spec, grid, self._clamp),
            kind=Kind.ACTIVATION,
            convention=self.kernels.convention(self._code, grid.dtype),
        )
        return self._emit(call, name)

    # Borders ------------------------------------------------------------------

    def _enter(self, index: int) -> None:
        grid = self.grids.get(index)
        if grid is None or not (grid.dtype in CODES or self._is_rescaled(index)):
            return
        codes = self.get_expr(index)
        self._set(index, self._emit(_dequantize(codes, grid), self._name(index)))

    def _is_rescaled(self, index: int) -> bool:
        """Whether an operator takes the codes of a tensor to another grid."""
        return any(
            index in self._tensors(op) and self.get_op_code_str(op) in ("QUANTIZE", "DEQUANTIZE")
            for op in self._operators()
        )

    def _leave(self, index: int) -> None:
        grid = self.grids.get(index)
        if grid is None or not self.has_expr(index):
            return
        value = self.get_expr(index)
        if str(value.ty.dtype) != "float32":
            return
        if grid.dtype not in CODES:
            raise UnsupportedError(
                f"Result '{self._name(index)}' is quantized to {grid.dtype}; supported are "
                f"{', '.join(CODES)}. Let the network end before that QUANTIZE."
            )
        scale, zero_point = constant(grid.scale), constant(grid.zero_point.astype(grid.dtype))
        codes = R.quantize(value, scale, zero_point, out_dtype=grid.dtype)
        self._set(index, self.bb.emit(self.bb.normalize(codes)))

    def _stage(self, op: Any) -> None:
        """Bring the constants of an operator into the table, as real values."""
        inputs = [int(index) for index in op.InputsAsNumpy()]
        for index in inputs:
            grid = self._real_grid(index)
            if grid is not None and not self.has_expr(index):
                self._set(index, self._weight(index, grid))
        slots = SLOTS.get(self._code)
        if slots is not None and len(inputs) > slots.bias and inputs[slots.bias] >= 0:
            self._stage_bias(inputs, slots)

    def _weight(self, index: int, grid: Grid) -> relax.Expr:
        (wrapper,) = self.get_tensors([index])
        spec = grid.spec()
        real = constant(self.get_tensor_value(wrapper))
        call = simulated_quantize(real, grid.scale, grid.zero_point, spec=spec, kind=Kind.WEIGHT)
        return self._emit(call, self._name(index))

    def _stage_bias(self, inputs: list[int], slots: Slots) -> None:
        """Integers at the scale of the products, whatever the file says: so kernels take them."""
        index = inputs[slots.bias]
        (wrapper,) = self.get_tensors([index])
        data, weight = (self.grids.get(inputs[slot]) for slot in (slots.data, slots.weight))
        if data is None or weight is None or wrapper.tensor.Type() == tflite.TensorType.FLOAT32:
            return
        codes = super().get_tensor_value(wrapper)
        limits = np.iinfo("int32")
        if codes.size and (codes.min() < limits.min or codes.max() > limits.max):
            raise UnsupportedError(
                f"Bias '{self._name(index)}' holds {codes.min()} to {codes.max()}; supported are "
                "32 bits. Give the float model and quantize it here."
            )
        scale = np.asarray(data.scale.reshape(()) * weight.scale.reshape(-1), "float32")
        scale = (
            np.broadcast_to(scale, codes.shape) if weight.axis is not None else scale.reshape(())
        )
        call = R.dequantize(
            relax.const(codes.astype("int32"), "int32"),
            relax.const(np.ascontiguousarray(scale), "float32"),
            relax.const(np.zeros(scale.shape, "int32"), "int32"),
            axis=0,
        )
        self._set(index, self.bb.emit(self.bb.normalize(call)))

    # Operators --------------------------------------------------------------------

    def _quantize(self, op: Any) -> relax.Expr:
        (data,) = self.get_input_tensors(op)
        return self.get_tensor_expr(data)

    def _dequantize(self, op: Any) -> relax.Expr:
        (data,) = self.get_input_tensors(op)
        if data.tensor_idx in self.grids:
            return self.get_tensor_expr(data)
        return self.convert_dequantize(op)

    def _reshape(self, op: Any) -> relax.Expr:
        """Axes of one come and go: the shape of the result says which."""
        (data, *_), (result,) = self.get_input_tensors(op), self.get_output_tensors(op)
        shape = [int(size) for size in result.tensor.ShapeAsNumpy()]
        return R.reshape(self.get_tensor_expr(data), shape)

    def _softmax(self, op: Any) -> relax.Expr:
        """With `beta`, which TVM leaves out."""
        options = self._options(op, tflite.SoftmaxOptions())
        (data,) = self.get_input_tensors(op)
        expr = self.get_tensor_expr(data)
        if options.Beta() != 1.0:
            expr = R.multiply(expr, relax.const(options.Beta(), "float32"))
        return R.nn.softmax(expr, axis=-1)

    def _fully_connected(self, op: Any) -> relax.Expr:
        """Rows of as many elements as the weights have columns, whatever the shape of the data."""
        data, weight, *_ = self.get_input_tensors(op)
        options = self._options(op, tflite.FullyConnectedOptions())
        depth = int(weight.tensor.Shape(1))
        before = self.get_tensor_expr(data)
        flat = options.KeepNumDims() or before.ty.ndim == 2
        if not flat:
            self._set(data.tensor_idx, R.reshape(before, (-1, depth)))
        result = self.convert_fully_connected(op)
        self._set(data.tensor_idx, before)
        return result

    def _transpose_conv(self, op: Any) -> relax.Expr:
        """With channels in front, the only layout that TVM lowers."""
        options = self._options(op, tflite.TransposeConvOptions())
        _, weight, data, *bias = self.get_input_tensors(op)
        (result_tensor,) = self.get_output_tensors(op)
        strides = (options.StrideH(), options.StrideW())
        sizes = [int(size) for size in result_tensor.tensor.ShapeAsNumpy()[1:3]]
        window = [int(size) for size in weight.tensor.ShapeAsNumpy()[1:3]]
        given = [int(size) for size in data.tensor.ShapeAsNumpy()[1:3]]
        same = options.Padding() == tflite.Padding.SAME
        pads = [
            get_pad_value(size, width, stride) if same else (0, 0)
            for size, width, stride in zip(sizes, window, strides, strict=True)
        ]
        reached = [
            (size - 1) * stride + width - sum(pad)
            for size, stride, width, pad in zip(given, strides, window, pads, strict=True)
        ]
        result = R.nn.conv2d_transpose(
            R.permute_dims(self.get_tensor_expr(data), (0, 3, 1, 2)),
            R.permute_dims(self.get_tensor_expr(weight), (3, 0, 1, 2)),
            strides=strides,
            padding=[pads[0][0], pads[1][0], pads[0][1], pads[1][1]],
            output_padding=[size - got for size, got in zip(sizes, reached, strict=True)],
        )
        result = R.permute_dims(result, (0, 2, 3, 1))
        if bias and bias[0].tensor_idx >= 0:
            result = R.add(result, self.get_tensor_expr(bias[0]))
        return self.convert_fused_activation_function(result, options.FusedActivationFunction())

    # Helpers ----------------------------------------------------------------------

    def _operators(self) -> Iterable[Any]:
        return map(self.subgraph.Operators, range(self.subgraph.OperatorsLength()))

    def _tensors(self, op: Any) -> list[int]:
        return [int(i) for i in (*op.InputsAsNumpy(), *op.OutputsAsNumpy()) if i >= 0]

    def _real_grid(self, index: int) -> Grid | None:
        """The grid of a constant that stands for real values; positions and biases do not."""
        grid = self.grids.get(index)
        is_position = grid is not None and grid.dtype == "int32"
        return None if is_position or index < 0 else grid

    def _name(self, index: int) -> str:
        return tensor_name(self.subgraph.Tensors(index), index)

    def _set(self, index: int, expr: relax.Expr) -> None:
        name = get_tensor_name(self.subgraph, index)
        self.exp_tab.set_expr(name, expr, force_override=True)

    def _options(self, op: Any, options: Any) -> Any:
        table = op.BuiltinOptions()
        if table is not None:
            options.Init(table.Bytes, table.Pos)
        return options


def _grids(subgraph: tflite.SubGraph) -> dict[int, Grid]:
    found = {i: grid_of(subgraph.Tensors(i), i) for i in range(subgraph.TensorsLength())}
    return {index: grid for index, grid in found.items() if grid is not None}


def _by_name(subgraph: tflite.SubGraph, grids: dict[int, Grid]) -> dict[str, Grid]:
    """The table of expressions goes by names.

    Raises:
        FrontendError: two quantized tensors have one name.
    """
    found: dict[str, Grid] = {}
    for index, grid in grids.items():
        name = get_tensor_name(subgraph, index)
        if name in found:
            raise FrontendError(
                f"Two quantized tensors are named '{name}', one of them number {index}; expected "
                "names of their own. Convert the network again."
            )
        found[name] = grid
    return found


def _narrowed(spec: QuantSpec, grid: Grid, clamp: tuple[float, float] | None) -> QuantSpec:
    """The codes that a fused activation leaves."""
    if clamp is None or not np.isfinite(clamp).any():
        return spec
    low, high = (int(quantize_numpy(bound, grid.scale, grid.zero_point, spec)) for bound in clamp)
    return replace(
        spec,
        low=None if low == spec.qmin else low,
        high=None if high == spec.qmax else high,
    )


def _dequantize(codes: relax.Expr, grid: Grid) -> relax.Call:
    if grid.axis is not None:
        raise UnsupportedError(
            f"A graph input has {grid.scale.size} scales; expected one. Quantize it per tensor."
        )
    zero_point = constant(grid.zero_point.astype(grid.dtype))
    return R.dequantize(codes, constant(grid.scale), zero_point)
