"""What a region of a network consists of: int8 tensors, and layers that compute one from others.

All values are integers. A layer adds up products in int32, shifts the sum and clips it to int8:

    sum    = contraction + bias[c] + (residual << residual_shift[c])
    scaled = (sum + 2**(s - 1)) >> s    if s = shift[c] > 0    (round half up)
             sum << -s                  otherwise
    output = clip(scaled, low, high)

A ReLU is `low=0`. `tvm_quant.backend.vta.reference` computes the same in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tvm_quant.errors import BackendError

Array = npt.NDArray[Any]
Pair = tuple[int, int]

INT8_LOW, INT8_HIGH = -128, 127
SHIFTS = (-4, 31)  # of a sum; positive is right
RESIDUAL_SHIFTS = (0, 24)  # of a residual; positive is left


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An int8 tensor of a region.

    Attributes:
        name: unique in its region.
        shape: (N, C, H, W), or (M, K) for rows of features, which is as (M, K, 1, 1).
    """

    name: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        _require(
            len(self.shape) in (2, 4) and all(extent > 0 for extent in self.shape),
            f"tensor '{self.name}'",
            f"shape {self.shape}, expected (N, C, H, W) or (M, K) with positive extents",
        )

    @property
    def nchw(self) -> tuple[int, int, int, int]:
        """Samples, channels, height, width.

        >>> Tensor(name="x", shape=(1, 10)).nchw
        (1, 10, 1, 1)
        """
        batch, channels, *plane = self.shape
        height, width = plane or (1, 1)
        return batch, channels, height, width


@dataclass(frozen=True, kw_only=True, eq=False)
class Residual:
    """A tensor of the output's shape that is added to the sum before its shift.

    Attributes:
        tensor: its name.
        shift: left shift: a number, or one per channel, int32 (C,); 0 to 24.
    """

    tensor: str
    shift: int | Sequence[int] | Array = 0

    def shifts(self, channels: int) -> Array:
        """Left shift per channel, int32 (channels,)."""
        return _per_channel(self.shift, channels)


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """What all layers have.

    Attributes:
        name: unique in its region; for messages and traces.
        output: name of the tensor that it computes.
    """

    name: str
    output: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that it reads."""
        raise NotImplementedError

    def output_shape(self, shapes: dict[str, Tensor]) -> tuple[int, int, int, int]:
        """(N, C, H, W) of the output.

        Raises:
            BackendError: the inputs do not fit the layer.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Raise BackendError where the layer contradicts itself."""

    def __post_init__(self) -> None:
        self.check()

    def _require(self, condition: bool, message: str) -> None:
        _require(condition, f"layer '{self.name}'", message)


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantized(Layer):
    """A layer that ends in a shift and a clip.

    Attributes:
        shift: right shift of the sum with rounding, or left shift if negative: a number, or one per
            output channel, int32 (O,); -4 to 31.
        low, high: bounds of the output, within int8.
    """

    shift: int | Sequence[int] | Array = 0
    low: int = INT8_LOW
    high: int = INT8_HIGH

    def shifts(self, channels: int) -> Array:
        """Shift per output channel, int32 (channels,)."""
        return _per_channel(self.shift, channels)

    def check(self) -> None:
        """See `Layer.check`."""
        self._require(
            INT8_LOW <= self.low <= self.high <= INT8_HIGH,
            f"clips to [{self.low}, {self.high}], expected bounds within [-128, 127]",
        )
        self._require_shift("shift", self.shift, SHIFTS)

    def _require_shift(self, what: str, shift: Any, limits: Pair) -> None:
        seen = np.asarray(shift)
        low, high = limits
        self._require(
            seen.ndim <= 1 and seen.size > 0 and np.issubdtype(seen.dtype, np.integer),
            f"{what} {shift!r}, expected an integer or one per channel",
        )
        self._require(
            bool(low <= seen.min() and seen.max() <= high),
            f"{what} from {seen.min()} to {seen.max()}, expected {low} to {high}",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Weighted(Requantized):
    """A layer that multiplies by constant weights.

    Attributes:
        data: name of the tensor that is multiplied.
        weight: int8; its first axis is the output channel.
        bias: int32 (O,), or None.
        residual: a tensor to add, or None.
    """

    data: str
    weight: Array
    bias: Array | None = None
    residual: Residual | None = None

    weight_axes: ClassVar[str]

    @property
    def inputs(self) -> tuple[str, ...]:
        """See `Layer.inputs`."""
        return (self.data,) if self.residual is None else (self.data, self.residual.tensor)

    @property
    def out_channels(self) -> int:
        """Number of output channels."""
        return int(self.weight.shape[0])

    @property
    def biases(self) -> Array:
        """int32 (O,); zeros without a bias."""
        if self.bias is None:
            return np.zeros(self.out_channels, np.int32)
        return self.bias

    @property
    def kernel(self) -> Array:
        """Weights as int8 (O, I / groups, KH, KW)."""
        raise NotImplementedError

    def check(self) -> None:
        """See `Layer.check`."""
        super().check()
        axes = self.weight_axes
        self._require(
            self.weight.dtype == np.int8 and self.weight.ndim == len(axes.split(", ")),
            f"weight is {self.weight.dtype} {self.weight.shape}, expected int8 ({axes})",
        )
        self._require(self.weight.size > 0, f"weight is empty: {self.weight.shape}")
        per_channel = (self.out_channels,)
        if self.bias is not None:
            self._require(
                self.bias.dtype == np.int32 and self.bias.shape == per_channel,
                f"bias is {self.bias.dtype} {self.bias.shape}, expected int32 {per_channel}",
            )
        self._require_channels("shift", self.shift)
        if self.residual is not None:
            self._require_shift("shift of the residual", self.residual.shift, RESIDUAL_SHIFTS)
            self._require_channels("shift of the residual", self.residual.shift)

    def _require_channels(self, what: str, shift: Any) -> None:
        sizes = (1, self.out_channels)
        self._require(
            np.size(shift) in sizes,
            f"{what} has {np.size(shift)} values, expected 1 or one per output channel "
            f"({self.out_channels})",
        )

    def _require_residual(
        self, shapes: dict[str, Tensor], output: tuple[int, int, int, int]
    ) -> None:
        if self.residual is not None:
            seen = shapes[self.residual.tensor].nchw
            self._require(
                seen == output,
                f"residual '{self.residual.tensor}' has shape {seen}, expected {output}",
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Convolution(Weighted):
    """conv2d of an NCHW tensor.

    Attributes:
        weight: int8 (O, I / groups, KH, KW).
        strides: vertical, horizontal.
        padding: zeros at the top, left, bottom, right.
        dilation: vertical, horizontal distance of the kernel's taps.
        groups: of input channels; as many as channels is a depthwise convolution.
    """

    strides: Pair = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    weight_axes: ClassVar[str] = "O, I / groups, KH, KW"

    @property
    def kernel(self) -> Array:
        """See `Weighted.kernel`."""
        return self.weight

    def check(self) -> None:
        """See `Layer.check`."""
        super().check()
        self._require(
            min(self.strides) > 0 and min(self.dilation) > 0,
            f"strides {self.strides}, dilation {self.dilation}, expected positive ones",
        )
        self._require(min(self.padding) >= 0, f"padding {self.padding}, expected none below 0")
        self._require(
            self.groups > 0 and self.out_channels % self.groups == 0,
            f"{self.groups} groups of {self.out_channels} output channels, expected a divisor",
        )

    def output_shape(self, shapes: dict[str, Tensor]) -> tuple[int, int, int, int]:
        """See `Layer.output_shape`."""
        batch, channels, height, width = shapes[self.data].nchw
        _, per_group, kernel_height, kernel_width = self.weight.shape
        self._require(
            channels == per_group * self.groups,
            f"data '{self.data}' has {channels} channels, expected {per_group * self.groups}: "
            f"{self.groups} groups of {per_group}",
        )
        top, left, bottom, right = self.padding
        output = (
            batch,
            self.out_channels,
            _windows(
                height + top + bottom, (kernel_height - 1) * self.dilation[0] + 1, self.strides[0]
            ),
            _windows(
                width + left + right, (kernel_width - 1) * self.dilation[1] + 1, self.strides[1]
            ),
        )
        self._require(min(output) > 0, f"the kernel does not fit into '{self.data}' once")
        self._require_residual(shapes, output)
        return output


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense(Weighted):
    """Matrix product of rows of features, (M, K) or (M, K, 1, 1), with weights, int8 (O, K)."""

    weight_axes: ClassVar[str] = "O, K"

    @property
    def kernel(self) -> Array:
        """See `Weighted.kernel`."""
        return self.weight[:, :, None, None]

    def output_shape(self, shapes: dict[str, Tensor]) -> tuple[int, int, int, int]:
        """See `Layer.output_shape`."""
        rows, features, *plane = shapes[self.data].nchw
        self._require(
            (features, *plane) == (self.weight.shape[1], 1, 1),
            f"data '{self.data}' has shape {shapes[self.data].shape}, "
            f"expected ({rows}, {self.weight.shape[1]})",
        )
        output = (rows, self.out_channels, 1, 1)
        self._require_residual(shapes, output)
        return output


@dataclass(frozen=True, kw_only=True, eq=False)
class Add(Requantized):
    """Sum of two tensors of one shape, each shifted left first; 0 to 24.

    Attributes:
        lhs, rhs: names of the tensors.
        lhs_shift, rhs_shift: left shifts.
        shift: of the sum; a number.
    """

    lhs: str
    rhs: str
    lhs_shift: int = 0
    rhs_shift: int = 0

    @property
    def inputs(self) -> tuple[str, ...]:
        """See `Layer.inputs`."""
        return self.lhs, self.rhs

    def check(self) -> None:
        """See `Layer.check`."""
        super().check()
        self._require(np.size(self.shift) == 1, "shift per channel, expected one number")
        for what in ("lhs_shift", "rhs_shift"):
            self._require_shift(what, getattr(self, what), RESIDUAL_SHIFTS)

    def output_shape(self, shapes: dict[str, Tensor]) -> tuple[int, int, int, int]:
        """See `Layer.output_shape`."""
        lhs, rhs = shapes[self.lhs].nchw, shapes[self.rhs].nchw
        self._require(lhs == rhs, f"adds '{self.lhs}' {lhs} and '{self.rhs}' {rhs}, which differ")
        return lhs


@dataclass(frozen=True, kw_only=True, eq=False)
class MaxPool(Layer):
    """The largest value of each window; padding never is.

    Attributes:
        data: name of an NCHW tensor.
        window: height, width.
        strides: vertical, horizontal.
        padding: -128 at the top, left, bottom, right; more at the bottom and right stands for
            `ceil_mode`.
    """

    data: str
    window: Pair
    strides: Pair = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def inputs(self) -> tuple[str, ...]:
        """See `Layer.inputs`."""
        return (self.data,)

    def check(self) -> None:
        """See `Layer.check`."""
        self._require(
            min(*self.window, *self.strides) > 0 and min(self.padding) >= 0,
            f"window {self.window}, strides {self.strides}, padding {self.padding}: expected "
            "positive extents and no negative padding",
        )

    def output_shape(self, shapes: dict[str, Tensor]) -> tuple[int, int, int, int]:
        """See `Layer.output_shape`."""
        batch, channels, height, width = shapes[self.data].nchw
        top, left, bottom, right = self.padding
        output = (
            batch,
            channels,
            _windows(height + top + bottom, self.window[0], self.strides[0]),
            _windows(width + left + right, self.window[1], self.strides[1]),
        )
        self._require(min(output) > 0, f"the window does not fit into '{self.data}' once")
        return output


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Layers that run as one program.

    Attributes:
        name: for messages.
        tensors: all tensors; each is an input or the output of one layer.
        layers: in an order in which each reads what was computed before it.
        inputs: names of the tensors that come from outside, in the order of the call.
        outputs: names of the tensors that are returned, in order.
    """

    name: str
    tensors: tuple[Tensor, ...]
    layers: tuple[Layer, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def by_name(self) -> dict[str, Tensor]:
        """Tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    def __post_init__(self) -> None:
        where = f"region '{self.name}'"
        _require(bool(self.layers), where, "it has no layers")
        _require(bool(self.inputs) and bool(self.outputs), where, "expected inputs and outputs")
        _require_unique(where, "tensor", [tensor.name for tensor in self.tensors])
        _require_unique(where, "layer", [layer.name for layer in self.layers])
        _require_unique(where, "computed tensor", [*self.inputs, *self._computed()])
        known = set(self.inputs)
        for name in (*self.inputs, *self._computed()):
            _require(name in self.by_name, where, f"tensor '{name}' is not declared")
        for layer in self.layers:
            self._check_layer(layer, known)
            known.add(layer.output)
        for name in self.outputs:
            _require(name in known, where, f"output '{name}' is computed by no layer")

    def _computed(self) -> list[str]:
        return [layer.output for layer in self.layers]

    def _check_layer(self, layer: Layer, known: set[str]) -> None:
        where = f"region '{self.name}', layer '{layer.name}'"
        for name in layer.inputs:
            _require(name in known, where, f"reads '{name}' before anything computes it")
        declared = self.by_name[layer.output].nchw
        computed = layer.output_shape(self.by_name)
        _require(
            declared == computed,
            where,
            f"output '{layer.output}' is declared as {declared}, but is {computed}",
        )


def _windows(extent: int, window: int, stride: int) -> int:
    return (extent - window) // stride + 1


def _per_channel(value: Any, channels: int) -> Array:
    return np.broadcast_to(np.asarray(value, np.int32), (channels,))


def _require_unique(where: str, what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    _require(not twice, where, f"{what} {', '.join(twice)} stands there twice")


def _require(condition: bool, where: str, message: str) -> None:
    if not condition:
        raise BackendError(f"VTA {where}: {message}.")
