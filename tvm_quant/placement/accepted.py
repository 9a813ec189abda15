"""What a port accepts under a config: the grids of the hardware row, in the user's order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm_quant.config import LayerConfig, QuantizeConfig, matches
from tvm_quant.hardware import Grid

Grids = tuple[Grid, ...]


def layer_config(config: QuantizeConfig, *names: str) -> LayerConfig:
    """The overrides that apply to a node of these names, merged; later patterns win."""
    merged = LayerConfig()
    for pattern, layer in config.overrides.items():
        if matches(pattern, *names):
            given = {name: value for name, value in vars(layer).items() if value is not None}
            merged = replace(merged, **given)
    return merged


def accepted_activation(grids: Grids, config: QuantizeConfig, layer: LayerConfig) -> Grids:
    """The grids of an activation.

    Those around zero alone, or those that are not, if the config says so. The width of the config
    comes first and those of the row follow; a width of the layer stands alone. What the row does
    not list is made of its first grid.
    """
    if config.symmetric_activations is not None:
        symmetric = config.symmetric_activations
        grids = _matching(
            grids, lambda g: g.symmetric == symmetric, lambda g: _with_mode(g, symmetric)
        )
    wanted = layer.nbit_activation or config.nbit_activation
    found = _matching(grids, lambda g: g.bits == wanted, lambda g: replace(g, bits=wanted))
    return found if layer.nbit_activation else tuple(dict.fromkeys((*found, *grids)))


def accepted_weight(grids: Grids, config: QuantizeConfig, layer: LayerConfig) -> Grids:
    """The grids of a weight: of the width and granularity that the layer or the config names."""
    wanted = layer.nbit_weight or config.nbit_weight
    fine = config.per_channel if layer.per_channel is None else layer.per_channel
    grids = _matching(grids, lambda g: g.bits == wanted, lambda g: replace(g, bits=wanted))
    return _matching(grids, lambda g: g.per_channel == fine, lambda g: replace(g, per_channel=fine))


def _matching(
    grids: Grids, wanted: Callable[[Grid], bool], changed: Callable[[Grid], Grid]
) -> Grids:
    """The grids that are as wanted; if none is, the first one changed to be."""
    return tuple(grid for grid in grids if wanted(grid)) or (changed(grids[0]),)


def _with_mode(grid: Grid, symmetric: bool) -> Grid:
    signed = True if symmetric else grid.signed
    return replace(grid, symmetric=symmetric, signed=signed, narrow=symmetric)
