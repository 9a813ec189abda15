"""From a Relax function to the graph that placement is solved on.

Each call is an operator, its operands with tuples flattened are ports. Parameters of the function,
values that no call computes, and what the function returns are operators in float.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax

from tvm_quant.config import QuantizeConfig, matches
from tvm_quant.errors import ConfigError
from tvm_quant.hardware import HardwareConfig
from tvm_quant.ir import constant_value
from tvm_quant.op import Role, spec_for
from tvm_quant.placement.accepted import accepted_activation, accepted_weight, layer_config
from tvm_quant.placement.flow import Flow
from tvm_quant.placement.graph import Graph, Op, Port, Trait
from tvm_quant.placement.network import Network, Node

RESULT = "the result of the network"


def extract(
    network: Network, flow: Flow, hardware: HardwareConfig, config: QuantizeConfig
) -> Graph:
    """The graph of a function.

    Args:
        network: its calls.
        flow: which of their ports ask for quantizers.
        hardware: names the operators whose inputs share a scale.
        config: widths and modes of the quantizers.

    Raises:
        ConfigError: an override selects no layer.
    """
    _check_overrides(network, flow, config)
    return Graph(_ops(network, flow, hardware, config))


def _ops(
    network: Network, flow: Flow, hardware: HardwareConfig, config: QuantizeConfig
) -> Iterator[Op]:
    for var in network.values:
        node = network.node(var)
        if node is None:
            yield Op(name=str(var.name), trait=Trait.FLOAT)
        else:
            yield Op(
                name=str(var.name),
                trait=_trait(node, flow),
                ports=tuple(_ports(node, flow, config)),
                unified=node.names[1] in hardware.unified,
                keeps_channels=_keeps_channels(node),
            )
    yield Op(
        name=RESULT,
        trait=Trait.FLOAT,
        ports=tuple(
            Port(source=str(var.name))
            for var in network.values
            if any(user is None for user, _port in network.uses[var])
        ),
    )


def _trait(node: Node, flow: Flow) -> Trait:
    if node.var in flow.reasons:
        return Trait.FLOAT
    return _MOVING_TRAITS.get(node.role, Trait.QUANTIZABLE)


_MOVING_TRAITS: dict[Role | None, Trait] = {Role.MOVE: Trait.AGNOSTIC, Role.JOIN: Trait.JOIN}


def _ports(node: Node, flow: Flow, config: QuantizeConfig) -> Iterator[Port]:
    layer = layer_config(config, *node.names)
    fixed = layer.nbit_activation is not None or layer.activation_estimator is not None
    for index, operand in enumerate(node.operands):
        grids = flow.asks.get((node.var, index), ())
        if constant_value(operand) is not None:
            yield Port(source=None, grids=grids and accepted_weight(grids, config, layer))
        elif isinstance(operand, relax.Var):
            yield Port(
                source=str(operand.name),
                grids=grids and accepted_activation(grids, config, layer),
                integer=str(getattr(operand.ty, "dtype", "float32")) != "float32",
                fixed=fixed,
            )
        else:  # a shape or an attribute
            yield Port(source=None)


def _keeps_channels(node: Node) -> bool:
    spec = spec_for(node.call)
    return spec is not None and spec.keeps_channels


def _check_overrides(network: Network, flow: Flow, config: QuantizeConfig) -> None:
    names = sorted({network.nodes[var].names for var, _port in flow.asks})
    for pattern in config.overrides:
        if not any(matches(pattern, *pair) for pair in names):
            raise ConfigError(
                f"overrides: pattern '{pattern}' matches no quantized layer; "
                f"layers are {[node for node, _op in names][:20]}."
            )
