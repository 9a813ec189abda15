"""Axes of convolutions and matrix products."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from tvm_quant.ir import op_name, tensor_shape


@dataclass(frozen=True, kw_only=True)
class ContractionAxes:
    """Where the channels of a contraction stand.

    Attributes:
        data: input channel axis of operand 0, from the front.
        output: output channel axis of the result.
        weight_output: output channel axis of operand 1.
        weight_input: input channel axis of operand 1.
        groups: groups of a convolution; 1 for a matmul.
        transposed: whether the weight's output axis holds O/groups channels for each block of
            inputs.
    """

    data: int
    output: int
    weight_output: int
    weight_input: int
    groups: int = 1
    transposed: bool = False

    @property
    def weight_blocks(self) -> int:
        """Blocks along the weight's axis 0 with output channels of their own."""
        return self.groups if self.transposed else 1


def contraction_axes(call: relax.Call) -> ContractionAxes:
    """The axes of a call whose role is CONTRACTION.

    >>> x = relax.Var("x", relax.TensorType((1, 3, 8, 8), "float32"))
    >>> w = relax.Var("w", relax.TensorType((4, 3, 3, 3), "float32"))
    >>> call = relax.BlockBuilder().normalize(relax.op.nn.conv2d(x, w))
    >>> contraction_axes(call).weight_output
    0
    """
    if op_name(call) == "relax.matmul":
        return _matmul_axes(call)
    attrs = call.attrs
    kernel = str(attrs.kernel_layout)
    return ContractionAxes(
        data=str(attrs.data_layout).index("C"),
        output=str(attrs.out_layout or attrs.data_layout).index("C"),
        weight_output=kernel.index("O"),
        weight_input=kernel.index("I"),
        groups=int(attrs.groups),
        transposed="transpose" in str(op_name(call)),
    )


def is_depthwise(call: relax.Call) -> bool:
    """Whether a call is a convolution with a kernel of its own for each input channel.

    >>> x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    >>> w = relax.Var("w", relax.TensorType((8, 1, 3, 3), "float32"))
    >>> is_depthwise(relax.BlockBuilder().normalize(relax.op.nn.conv2d(x, w, groups=4)))
    True
    """
    if not str(op_name(call)).startswith("relax.nn.conv") or int(call.attrs.groups) == 1:
        return False
    groups = int(call.attrs.groups)
    channels = tensor_shape(call.args[0])
    return channels is not None and channels[contraction_axes(call).data] == groups


def _matmul_axes(call: relax.Call) -> ContractionAxes:
    ranks = [len(tensor_shape(operand) or ()) for operand in call.args]
    rank = max(ranks)
    return ContractionAxes(
        data=ranks[0] - 1,
        output=rank - 1,
        weight_output=ranks[1] - 1,
        weight_input=max(ranks[1] - 2, 0),
    )
