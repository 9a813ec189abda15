import re

import pytest

from tvm_quant.config import LayerConfig, QuantizeConfig
from tvm_quant.errors import ConfigError
from tvm_quant.hardware.x86 import S8, U8
from tvm_quant.op import NO_GROUP, Kind, QuantSpec
from tvm_quant.placement import Candidate, Place, Proposal, Quantizer, Setup, choose, layer_config

CONV = ("stem.conv", "relax.nn.conv2d")
POOL = ("pool", "relax.nn.max_pool2d")
DATA, WEIGHT = Place(consumer="conv", port=0), Place(consumer="conv", port=1)
OTHER = Place(consumer="pool", port=0)

PROPOSAL = Proposal(
    candidates={
        DATA: Candidate(source="x", kind=Kind.INPUT, specs=(U8, S8), names=CONV),
        WEIGHT: Candidate(source=None, kind=Kind.WEIGHT, specs=(S8,), axis=1, groups=2, names=CONV),
        OTHER: Candidate(source="conv", kind=Kind.ACTIVATION, specs=(U8,), names=POOL),
    },
    reasons={"softmax": "no integer form of this operator"},
)


def specs(proposal=PROPOSAL, **config):
    setup = choose(proposal, QuantizeConfig(**config))
    return {place: quantizer.spec for place, quantizer in setup.quantizers.items()}


def test_the_first_grid_is_chosen_and_reasons_are_kept():
    per_channel = QuantSpec(bits=8, narrow=True, axis=1, groups=2)
    assert choose(PROPOSAL, QuantizeConfig()) == Setup(
        quantizers={
            DATA: Quantizer(spec=U8, kind=Kind.INPUT),
            WEIGHT: Quantizer(spec=per_channel, kind=Kind.WEIGHT),
            OTHER: Quantizer(spec=U8, kind=Kind.ACTIVATION),
        },
        reasons=PROPOSAL.reasons,
    )


def test_widths_come_from_the_config():
    found = specs(nbit_input=16, nbit_activation=4, nbit_weight=3)
    assert {place: spec.bits for place, spec in found.items()} == {DATA: 16, OTHER: 4, WEIGHT: 3}


def test_weights_have_one_scale_without_per_channel():
    assert specs(per_channel=False)[WEIGHT] == QuantSpec(bits=8, narrow=True)


@pytest.mark.parametrize(
    ("symmetric", "spec"),
    [
        (None, U8),
        (False, U8),
        (True, QuantSpec(bits=8, signed=True, narrow=True, symmetric=True)),
    ],
)
def test_symmetric_activations_change_the_grid_of_the_row(symmetric, spec):
    found = specs(symmetric_activations=symmetric)
    assert (found[DATA], found[OTHER]) == (spec, spec)
    assert found[WEIGHT].symmetric


def test_a_signed_symmetric_grid_can_be_made_affine():
    proposal = Proposal(
        candidates={DATA: Candidate(source="x", kind=Kind.ACTIVATION, specs=(S8,), names=CONV)}
    )
    found = specs(proposal, symmetric_activations=False)
    assert found[DATA] == QuantSpec(bits=8, signed=True, narrow=False, symmetric=False)


def test_an_override_changes_the_layers_it_selects():
    layer = LayerConfig(nbit_activation=16, nbit_weight=4, per_channel=False)
    found = specs(overrides={"stem.*": layer})
    assert (found[DATA].bits, found[WEIGHT].bits, found[OTHER].bits) == (16, 4, 8)
    assert found[WEIGHT].axis is None


def test_of_several_overrides_the_last_wins_field_by_field():
    config = QuantizeConfig(
        overrides={
            "stem.*": LayerConfig(nbit_weight=4, nbit_activation=6),
            "relax.nn.conv2d": LayerConfig(nbit_weight=2),
            "other": LayerConfig(nbit_weight=7),
        }
    )
    assert layer_config(config, *CONV) == LayerConfig(nbit_weight=2, nbit_activation=6)


def test_an_override_that_selects_nothing_is_refused():
    message = re.escape(
        "overrides: pattern 'head' matches no quantized layer; layers are ['pool', 'stem.conv']."
    )
    with pytest.raises(ConfigError, match=message):
        specs(overrides={"head": LayerConfig(nbit_weight=4)})


def test_places_that_share_a_grid_get_one_group_and_the_widest_grid():
    proposal = Proposal(
        candidates=PROPOSAL.candidates, unified=(frozenset({DATA, OTHER}),), reasons={}
    )
    setup = choose(proposal, QuantizeConfig(nbit_input=16, nbit_activation=8))
    data, other, weight = (setup.quantizers[place] for place in (DATA, OTHER, WEIGHT))
    assert (data.spec.bits, other.spec.bits) == (16, 16)
    assert data.group == other.group != NO_GROUP
    assert weight.group == NO_GROUP
