import dataclasses

import pytest

from tvm_quant import LayerConfig, QuantizeConfig
from tvm_quant.config import matches
from tvm_quant.errors import ConfigError
from tvm_quant.search import FLOAT, Budget, Choice, LayerGroup
from tvm_quant.search.budget import bits_of
from tvm_quant.search.configure import configure, with_activation_bits, with_weight_bits


def group(*nodes, weights=10):
    return LayerGroup(nodes=nodes, layers=nodes, weights=weights)


A, B, C = group("a", "a2"), group("b"), group("c[1]")
CHOICES = {A: Choice(weight_bits=4), B: FLOAT, C: Choice(weight_bits=8, activation_bits=16)}


def test_choices_are_spelled_by_name():
    found = configure(QuantizeConfig(skip=("first",)), CHOICES)
    assert found == QuantizeConfig(
        skip=("first", "b"),
        overrides={
            "a": LayerConfig(nbit_weight=4),
            "a2": LayerConfig(nbit_weight=4),
            "c[[]1]": LayerConfig(nbit_activation=16),
        },
    )
    assert matches("c[[]1]", "c[1]")
    assert not matches("c[[]1]", "c1")
    assert QuantizeConfig.from_dict(found.to_dict()) == found


def test_what_the_user_set_stays_but_for_the_bits():
    mine = {
        "a": LayerConfig(nbit_weight=6, weight_estimator="mse"),
        "*": LayerConfig(nbit_weight=7),
    }
    found = configure(QuantizeConfig(overrides=mine), CHOICES)
    assert list(found.overrides) == ["*", "a", "a2", "c[[]1]"]  # the last match wins
    assert found.overrides["a"] == LayerConfig(nbit_weight=4, weight_estimator="mse")
    assert found.overrides["c[[]1]"] == LayerConfig(nbit_weight=8, nbit_activation=16)


def test_bits_of_weights_can_be_kept():
    mine = {"c[[]1]": LayerConfig(nbit_weight=4)}
    wide = {C: Choice(weight_bits=8, activation_bits=16)}
    found = configure(QuantizeConfig(overrides=mine), wide, keep_weights=True)
    assert found.overrides == {"c[[]1]": LayerConfig(nbit_weight=4, nbit_activation=16)}


def test_settings_without_a_layer_go():
    mine = {name: LayerConfig(per_channel=False) for name in ("a", "b", "[ab]", "relax.add")}
    found = configure(QuantizeConfig(overrides=mine), {B: FLOAT}, [A, B, C])
    assert list(found.overrides) == ["a", "[ab]", "relax.add"]
    found = configure(QuantizeConfig(overrides=mine), {A: FLOAT, B: FLOAT}, [A, B, C])
    assert list(found.overrides) == ["relax.add"]


def test_bits_everywhere_override_overrides():
    mine = {"a": LayerConfig(nbit_weight=6, nbit_activation=5, per_channel=False)}
    config = QuantizeConfig(overrides=mine)
    assert with_weight_bits(config, 3) == dataclasses.replace(
        config, nbit_weight=3, overrides={"a": LayerConfig(nbit_activation=5, per_channel=False)}
    )
    assert with_activation_bits(config, 3) == dataclasses.replace(
        config,
        nbit_activation=3,
        nbit_input=3,
        overrides={"a": LayerConfig(nbit_weight=6, per_channel=False)},
    )


def test_a_budget_is_in_bits_of_all_weights():
    groups = [group("a", weights=10), group("b", weights=30)]
    assert Budget(weight_bytes=0.5).limit_bits(groups) == 160
    assert Budget(weight_bits=3).limit_bits(groups) == 120
    assert bits_of(groups[1], Choice(weight_bits=2)) == 60
    assert bits_of(groups[1], FLOAT) == 960


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "one limit, weight_bytes, weight_bits or latency; got none"),
        ({"weight_bytes": 1, "weight_bits": 4}, "one limit"),
        ({"weight_bytes": 0}, "weight_bytes is 0; expected more than 0"),
        ({"weight_bits": -1}, "weight_bits is -1; expected more than 0"),
    ],
)
def test_a_budget_that_makes_no_sense_is_an_error(fields, message):
    with pytest.raises(ConfigError, match=message):
        Budget(**fields)
