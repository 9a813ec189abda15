"""Where the taps of a kernel read, along each of its axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import op_name, tensor_shape

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class KernelAxis:
    """One spatial axis of a convolution.

    Attributes:
        data: the axis in operand 0.
        inputs, outputs: sizes; None where symbolic.
        taps: size of the kernel.
        stride, dilation: of the kernel; of a transposed convolution the stride is that of its
            output.
        before: padding in front.
        transposed: whether the convolution is.
    """

    data: int
    inputs: int | None
    outputs: int | None
    taps: int
    stride: int
    dilation: int
    before: int
    transposed: bool

    def reads(self, positions: Array) -> tuple[Array, Array]:
        """What the taps read for some output positions.

        Args:
            positions: int, (P,).

        Returns:
            (index, meets): (P, T) each; the index into the input, and whether there is a value. At
            the borders a tap reads padding, and a transposed convolution of stride s reaches every
            s-th position. There the index is 0.
        """
        assert self.inputs is not None, "the size is known"
        taps = np.arange(self.taps)[None] * self.dilation
        if self.transposed:
            index, gap = np.divmod(positions[:, None] + self.before - taps, self.stride)
        else:
            index = positions[:, None] * self.stride + taps - self.before
            gap = np.zeros_like(index)
        meets = (gap == 0) & (index >= 0) & (index < self.inputs)
        return np.where(meets, index, 0), meets


def kernel_axes(call: relax.Call) -> list[KernelAxis]:
    """The spatial axes of a convolution, in the order of the weight's."""
    attrs = call.attrs
    layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    result_layout = str(attrs.out_layout or layout)
    data, weight, result = (tensor_shape(e) or () for e in (call.args[0], call.args[1], call))
    return [
        KernelAxis(
            data=layout.index(letter),
            inputs=data[layout.index(letter)],
            outputs=result[result_layout.index(letter)],
            taps=int(weight[kernel.index(letter)] or 1),
            stride=int(attrs.strides[index]),
            dilation=int(attrs.dilation[index]),
            before=int(attrs.padding[index]),
            transposed="transpose" in str(op_name(call)),
        )
        for index, letter in enumerate(letter for letter in kernel if letter not in "OI")
    ]
