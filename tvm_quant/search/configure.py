"""Spelling choices as a plain `QuantizeConfig`, by the names of the layers."""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping
from dataclasses import replace

from tvm_quant.config import LayerConfig, QuantizeConfig, matches
from tvm_quant.search.choice import FLOAT, Choice
from tvm_quant.search.layer_groups import LayerGroup


def configure(
    config: QuantizeConfig,
    chosen: Mapping[LayerGroup, Choice],
    groups: Collection[LayerGroup] = (),
    *,
    keep_weights: bool = False,
) -> QuantizeConfig:
    """The config that gives groups their choice: bits by `overrides`, float by `skip`.

    Layers whose bits are those of `config` are not mentioned. Overrides that are left without a
    quantized layer go.

    Args:
        config: what holds for everything else.
        chosen: what changes.
        groups: all groups of the network.
        keep_weights: leave the bits of weights as `config` has them, layer by layer.
    """
    overrides = dict(config.overrides)
    skip = list(config.skip)
    for group, choice in chosen.items():
        patterns = [glob.escape(node) for node in group.nodes]
        if choice.weight_bits is None:
            skip += patterns
            continue
        layer = _settings(config, choice, keep_weights=keep_weights)
        if layer != LayerConfig():
            for pattern in patterns:
                overrides.pop(pattern, None)  # goes to the end, where it wins
                overrides[pattern] = _merged(config.overrides.get(pattern), layer)
    gone = {node for group, choice in chosen.items() if choice == FLOAT for node in group.nodes}
    left = {node for group in {*groups, *chosen} for node in group.nodes} - gone
    kept = {
        pattern: layer
        for pattern, layer in overrides.items()
        if _selects(pattern, left) or not _selects(pattern, gone)
    }
    return replace(config, overrides=kept, skip=tuple(skip))


def with_weight_bits(config: QuantizeConfig, bits: int) -> QuantizeConfig:
    """The config with these bits for all weights, whatever its overrides say."""
    overrides = {
        pattern: replace(layer, nbit_weight=None) for pattern, layer in config.overrides.items()
    }
    return replace(config, overrides=overrides, nbit_weight=bits)


def with_activation_bits(config: QuantizeConfig, bits: int) -> QuantizeConfig:
    """The config with these bits for all inputs and activations, whatever its overrides say."""
    overrides = {
        pattern: replace(layer, nbit_activation=None) for pattern, layer in config.overrides.items()
    }
    return replace(config, overrides=overrides, nbit_activation=bits, nbit_input=bits)


def _settings(config: QuantizeConfig, choice: Choice, *, keep_weights: bool) -> LayerConfig:
    """What differs from the config as a whole."""
    bits = choice.weight_bits
    said = bits == config.nbit_weight and not config.overrides
    return LayerConfig(
        nbit_weight=None if said or keep_weights else bits,
        nbit_activation=choice.activation_bits,
    )


def _merged(before: LayerConfig | None, layer: LayerConfig) -> LayerConfig:
    given = {name: value for name, value in vars(layer).items() if value is not None}
    return replace(before or LayerConfig(), **given)


def _selects(pattern: str, nodes: Collection[str]) -> bool:
    return any(matches(pattern, node) for node in nodes)
