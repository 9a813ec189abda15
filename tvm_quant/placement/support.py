"""Why a call cannot run on integers: one reason, in words for the user, or None."""

from __future__ import annotations

from collections.abc import Callable

from tvm_quant.config import QuantizeConfig, matches
from tvm_quant.errors import ConfigError
from tvm_quant.hardware import HardwareConfig
from tvm_quant.ir import constant_value, tensor_shape
from tvm_quant.op import Role, spec_for
from tvm_quant.placement.network import Network, Node, same_shape


class Support:
    """Answers `why_float(node)` for a network, a hardware row and a config."""

    def __init__(self, network: Network, hardware: HardwareConfig, config: QuantizeConfig):
        self.hardware = hardware
        self.config = config
        convolutions = [node.var for node in network.nodes.values() if ".conv" in node.names[1]]
        _check_selection(network, config, len(convolutions))
        self.skipped = {convolutions[index] for index in config.skip_conv_layers}

    def why_float(self, node: Node) -> str | None:
        """The reason, or None if the call can run on integers."""
        if node.role is None:
            return "no integer form of this operator"
        if self.hardware.operands(node.names[1]) is None:
            return f"hardware row '{self.hardware.name}' has no integer form of this operator"
        return self._why_dtype(node) or self._why_config(node) or self._why_role(node)

    def _why_dtype(self, node: Node) -> str | None:
        if tensor_shape(node.var) is None:
            return "result has no known rank"
        tensors = [node.var, *(var for _port, var in node.variables)]
        other = sorted({str(tensor.ty.dtype) for tensor in tensors} - {"float32"})
        return f"{', '.join(other)} tensors are not quantized" if other else None

    def _why_config(self, node: Node) -> str | None:
        if node.var in self.skipped:
            return "left in float by skip_conv_layers"
        for pattern in self.config.skip:
            if matches(pattern, *node.names):
                return f"left in float by skip pattern '{pattern}'"
        only = self.config.only if node.role is Role.CONTRACTION else None
        if only is not None and not any(matches(pattern, *node.names) for pattern in only):
            return "not selected by `only`"
        if self.config.skip_dense_layer and node.names[1] == "relax.matmul" and node.constants:
            return "left in float by skip_dense_layer"
        return None

    def _why_role(self, node: Node) -> str | None:
        assert node.role is not None
        check = _ROLE_CHECKS.get(node.role)
        return check(node) if check else None


def _why_contraction(node: Node) -> str | None:
    data, weight = node.operands[:2]
    if any(len(tensor_shape(operand) or ()) < 2 for operand in (data, weight)):
        return "a vector operand"
    if constant_value(data) is not None and constant_value(weight) is not None:
        return "both operands are constant"
    if node.names[1] != "relax.matmul" and constant_value(weight) is None:
        return "the kernel is computed at run time"
    if node.names[1] != "relax.matmul" and constant_value(data) is not None:
        return "the data is constant"
    return None


def _why_affine(node: Node) -> str | None:
    """With a constant: the integers keep their shape."""
    variables = node.variables
    if len(variables) == 1 and not same_shape(variables[0][1], node.var):
        return "a constant that is larger than the tensor"
    return None


def _why_join(node: Node) -> str | None:
    return "joins a constant" if node.constants else None


def _why_mean(node: Node) -> str | None:
    shape = tensor_shape(node.operands[0]) or ()
    if node.names[1] == "relax.mean":
        axes = node.call.attrs.axis
        reduced = range(len(shape)) if axes is None else [int(axis) for axis in axes]
        return "averages over a dynamic axis" if any(shape[a] is None for a in reduced) else None
    if node.names[1] == "relax.nn.adaptive_avg_pool2d":
        size = node.call.attrs.output_size
        whole = size is not None and all(int(side) == 1 for side in size)
        return None if whole and None not in shape[1:] else "adaptive pooling to more than one cell"
    attrs = node.call.attrs
    if bool(attrs.ceil_mode):
        return "average pooling with ceil_mode"
    if any(int(d) != 1 for d in attrs.dilation):
        return "average pooling with dilation"
    spatial = [
        size for size, axis in zip(shape, str(attrs.layout), strict=True) if axis not in "NC"
    ]
    uneven = not attrs.count_include_pad and any(int(p) for p in attrs.padding)
    return (
        "average pooling that leaves out padding of a dynamic size"
        if uneven and None in spatial
        else None
    )


def _why_move(node: Node) -> str | None:
    spec = spec_for(node.call)
    assert spec is not None
    return None if spec.moves_if(node.call) else "these attributes compute new values"


_ROLE_CHECKS: dict[Role, Callable[[Node], str | None]] = {
    Role.CONTRACTION: _why_contraction,
    Role.SUM: _why_affine,
    Role.PRODUCT: _why_affine,
    Role.POINTWISE: _why_affine,
    Role.JOIN: _why_join,
    Role.MEAN: _why_mean,
    Role.MOVE: _why_move,
}


def _check_selection(network: Network, config: QuantizeConfig, convolutions: int) -> None:
    wrong = [index for index in config.skip_conv_layers if index >= convolutions]
    if wrong:
        raise ConfigError(
            f"skip_conv_layers names {wrong}, but the network has {convolutions} convolution(s); "
            "indices count from 0 in execution order."
        )
    names = [node.names for node in network.nodes.values()]
    for field, patterns in (("skip", config.skip), ("only", config.only or ())):
        for pattern in patterns:
            if not any(matches(pattern, *pair) for pair in names):
                nodes = sorted({node for node, _op in names})
                raise ConfigError(
                    f"{field}: pattern '{pattern}' matches no node; nodes are {nodes[:20]}."
                )
