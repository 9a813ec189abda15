"""The quantization parameters of TFLite tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from tvm_quant.errors import FrontendError, UnsupportedError
from tvm_quant.op import QuantSpec

Array = npt.NDArray[Any]

#: Types whose tensors are codes where they have a scale.
_BITS = {
    tflite.TensorType.INT8: ("int8", 8),
    tflite.TensorType.UINT8: ("uint8", 8),
    tflite.TensorType.INT16: ("int16", 16),
    tflite.TensorType.INT32: ("int32", 32),
}

#: Scales outside make float32 infinite or subnormal somewhere on the way.
SMALLEST_SCALE, LARGEST_SCALE = 2.0**-60, 2.0**60


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Scale and zero point of a tensor.

    Attributes:
        dtype: of the codes.
        bits: of the codes.
        scale: float32, () or of the tensor's rank with ones but at the channel axis.
        zero_point: int64, shape of scale.
        axis: of the channels; None is one scale.
    """

    dtype: str
    bits: int
    scale: Array
    zero_point: Array
    axis: int | None

    def spec(self) -> QuantSpec:
        """The grid of the codes, with all codes that the type has."""
        return QuantSpec(
            bits=self.bits,
            signed=not self.dtype.startswith("u"),
            symmetric=not self.zero_point.any(),
            axis=self.axis,
        )

    def to_real(self, codes: Array) -> Array:
        """The real values of codes, float32."""
        steps = (codes.astype("int64") - self.zero_point).astype("float64")
        return np.asarray(steps * self.scale.astype("float64"), "float32")


def tensor_name(tensor: tflite.Tensor, index: int) -> str:
    """Name of a tensor, or its number where it has none."""
    name = tensor.Name()
    return f"#{index}" if name is None else str(name.decode("utf-8", "replace"))


def grid_of(tensor: tflite.Tensor, index: int) -> Grid | None:
    """The grid of a tensor; None if it has none.

    Raises:
        UnsupportedError: a grid that has no form here: by blocks, or of a type without codes.
        FrontendError: a grid that contradicts itself or the tensor.
    """
    quantization = tensor.Quantization()
    if quantization is None:
        return None
    name = tensor_name(tensor, index)
    if quantization.DetailsType() != tflite.QuantizationDetails.NONE:
        raise UnsupportedError(
            f"Tensor '{name}' is quantized by blocks or in a custom way. Quantize the weights per "
            "channel or per tensor."
        )
    floating = tensor.Type() in (tflite.TensorType.FLOAT32, tflite.TensorType.FLOAT16)
    if quantization.ScaleLength() == 0 or floating or tensor.Type() == tflite.TensorType.INT64:
        return None
    if tensor.Type() not in _BITS:
        raise UnsupportedError(
            f"Tensor '{name}' is quantized with type number {tensor.Type()} of TFLite; supported "
            "are int8, uint8, int16 and int32."
        )
    dtype, bits = _BITS[tensor.Type()]
    scale = np.array(quantization.ScaleAsNumpy(), "float32").reshape(-1)
    zero_point = np.zeros(1, "int64")
    if quantization.ZeroPointLength():
        zero_point = np.array(quantization.ZeroPointAsNumpy(), "int64").reshape(-1)
    _check(name, dtype, scale, zero_point)
    axis = None if scale.size == 1 else _channel_axis(tensor, name, scale.size)
    shape = [1] * (0 if axis is None else tensor.ShapeLength())
    if axis is not None:
        shape[axis] = -1
    return Grid(
        dtype=dtype,
        bits=bits,
        scale=scale.reshape(shape),
        zero_point=np.broadcast_to(zero_point, scale.shape).reshape(shape),
        axis=axis,
    )


def _check(name: str, dtype: str, scale: Array, zero_point: Array) -> None:
    usable = (scale >= SMALLEST_SCALE) & (scale <= LARGEST_SCALE)
    if not usable.all():
        raise FrontendError(
            f"Tensor '{name}' has the scale {scale[~usable][0]}; expected {SMALLEST_SCALE:.1e} to "
            f"{LARGEST_SCALE:.1e}. The file is damaged, or its calibration failed."
        )
    limits = np.iinfo(dtype)
    outside = (zero_point < limits.min) | (zero_point > limits.max)
    if outside.any():
        raise FrontendError(
            f"Tensor '{name}' has the zero point {zero_point[outside][0]}, which {dtype} does not "
            "hold. The file is damaged."
        )
    if zero_point.size not in (1, scale.size):
        raise FrontendError(
            f"Tensor '{name}' has {scale.size} scales and {zero_point.size} zero points. The file "
            "is damaged."
        )


def _channel_axis(tensor: tflite.Tensor, name: str, count: int) -> int:
    shape = [int(size) for size in tensor.ShapeAsNumpy()] if tensor.ShapeLength() else []
    axis = int(tensor.Quantization().QuantizedDimension())
    if len(shape) == 1:  # writers leave the axis of the weights here
        axis = 0
    if not 0 <= axis < len(shape) or shape[axis] != count:
        raise FrontendError(
            f"Tensor '{name}' of shape {tuple(shape)} has {count} scales along axis {axis}. The "
            "file is damaged."
        )
    return axis
