"""Why a call cannot run on integers: one reason, in words for the user, or None."""

from __future__ import annotations

from collections.abc import Callable

from tvm_quant.config import QuantizeConfig, matches
from tvm_quant.errors import ConfigError
from tvm_quant.hardware import HardwareConfig, OperandGrids
from tvm_quant.ir import constant_value, tensor_shape
from tvm_quant.op import Role, is_depthwise, why_no_integers
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
        if not self.hardware.runs(node.names[1]):
            return f"hardware row '{self.hardware.name}' has no integer form of this operator"
        return self._why_dtype(node) or self._why_config(node) or self._why_role(node)

    def operands(self, node: Node) -> OperandGrids | None:
        """The grids that the hardware accepts for the operands of a call, or None."""
        return self.hardware.operands(node.names[1], depthwise=is_depthwise(node.call))

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
        return why_no_integers(node.call) or (check(node) if check else None)


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


_ROLE_CHECKS: dict[Role, Callable[[Node], str | None]] = {
    Role.CONTRACTION: _why_contraction,
    Role.SUM: _why_affine,
    Role.PRODUCT: _why_affine,
    Role.POINTWISE: _why_affine,
    Role.JOIN: _why_join,
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
