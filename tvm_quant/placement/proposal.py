"""The two results of placement: a proposal (what is possible) and a setup (what is chosen).

A *place* is an input port: operand `port` of the call bound to variable `consumer`. A proposal
lists for each place the grids that the hardware accepts, best first, the places that must share one
grid, and the reason for each call that stays in float. `choose` picks one grid per place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tvm_quant.config import LayerConfig, QuantizeConfig, matches
from tvm_quant.errors import ConfigError
from tvm_quant.op import NO_GROUP, Kind, QuantSpec


@dataclass(frozen=True, kw_only=True)
class Place:
    """An input port: operand `port` (tuples flattened) of the call bound to `consumer`."""

    consumer: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A place that wants a quantizer.

    Attributes:
        source: variable that the port reads; None for a constant.
        kind: role of the tensor.
        specs: accepted grids, best first.
        axis: channel axis of a weight; None for everything else.
        groups: see `QuantSpec.groups`.
        names: node and operator of the consumer, for patterns.
    """

    source: str | None
    kind: Kind
    specs: tuple[QuantSpec, ...]
    axis: int | None = None
    groups: int = 1
    names: tuple[str, str] = ("", "")


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Everything that may be quantized, and why the rest may not.

    Attributes:
        candidates: per place, the grids to choose from.
        unified: sets of places that must share one grid and one scale.
        reasons: per variable of a call that stays in float, why.
    """

    candidates: Mapping[Place, Candidate]
    unified: tuple[frozenset[Place], ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Quantizer:
    """The chosen grid of a place and the number of its unified-scale group."""

    spec: QuantSpec
    kind: Kind
    group: int = NO_GROUP


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One quantizer per place, and the reasons of the proposal."""

    quantizers: Mapping[Place, Quantizer]
    reasons: Mapping[str, str]


def choose(proposal: Proposal, config: QuantizeConfig) -> Setup:
    """Take the first grid of every place, with the widths that `config` asks for.

    Places that share a grid get the widest that one of them asks for.

    Raises:
        ConfigError: an override selects no layer.
    """
    _check_overrides(proposal, config)
    specs = {place: _configure(found, config) for place, found in proposal.candidates.items()}
    groups = dict.fromkeys(specs, NO_GROUP)
    for index, places in enumerate(proposal.unified):
        bits = max(specs[place].bits for place in places)
        specs |= {place: replace(specs[place], bits=bits) for place in places}
        groups |= dict.fromkeys(places, index)
    quantizers = {
        place: Quantizer(spec=specs[place], kind=candidate.kind, group=groups[place])
        for place, candidate in proposal.candidates.items()
    }
    return Setup(quantizers=quantizers, reasons=proposal.reasons)


def layer_config(config: QuantizeConfig, *names: str) -> LayerConfig:
    """The overrides that apply to a node of these names, merged; later patterns win."""
    merged = LayerConfig()
    for pattern, layer in config.overrides.items():
        if matches(pattern, *names):
            given = {name: value for name, value in vars(layer).items() if value is not None}
            merged = replace(merged, **given)
    return merged


def _configure(candidate: Candidate, config: QuantizeConfig) -> QuantSpec:
    layer = layer_config(config, *candidate.names)
    spec = candidate.specs[0]
    if candidate.kind is Kind.WEIGHT:
        per_channel = config.per_channel if layer.per_channel is None else layer.per_channel
        bits = layer.nbit_weight or config.nbit_weight
        axis, groups = (candidate.axis, candidate.groups) if per_channel else (None, 1)
        return replace(spec, bits=bits, axis=axis, groups=groups)
    wide = config.nbit_input if candidate.kind is Kind.INPUT else config.nbit_activation
    spec = replace(spec, bits=layer.nbit_activation or wide)
    if config.symmetric_activations is None or spec.symmetric == config.symmetric_activations:
        return spec
    symmetric = config.symmetric_activations
    return replace(spec, signed=symmetric or spec.signed, narrow=symmetric, symmetric=symmetric)


def _check_overrides(proposal: Proposal, config: QuantizeConfig) -> None:
    names = sorted({candidate.names for candidate in proposal.candidates.values()})
    for pattern in config.overrides:
        if not any(matches(pattern, *pair) for pair in names):
            raise ConfigError(
                f"overrides: pattern '{pattern}' matches no quantized layer; "
                f"layers are {[node for node, _op in names][:20]}."
            )
