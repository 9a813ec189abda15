import dataclasses
import re

import pytest
import yaml

from tvm_quant.config import (
    BadData,
    BiasCorrection,
    LayerConfig,
    MergeRule,
    QuantizeConfig,
    WeightRounding,
    ZeroData,
    matches,
)
from tvm_quant.errors import ConfigError
from tvm_quant.op import RequantizeMode

EVERYTHING = QuantizeConfig(
    hardware="arm_dot",
    nbit_input=16,
    nbit_activation=4,
    nbit_weight=3,
    merge_branches=MergeRule.REQUANTIZE,
    activation_estimator="percentile",
    weight_estimator="mse",
    estimator_options={"percentile": {"percentile": 99.5}},
    per_channel=False,
    symmetric_activations=True,
    global_scale=4.0,
    power_of_two_scales=True,
    requantize=RequantizeMode.SHIFT,
    bias_correction=BiasCorrection.FULL,
    bias_samples=7,
    weight_rounding=WeightRounding.NEAREST,
    match_channel_scales=False,
    equalize=True,
    skip=("head.*", "relax.matmul"),
    skip_conv_layers=(0, 3),
    skip_dense_layer=True,
    only=("body.*",),
    overrides={"body.1": LayerConfig(nbit_weight=8, per_channel=True), "*": LayerConfig()},
    simulate=True,
    max_samples=100,
    profile_chunk=2,
    on_bad=BadData.SKIP,
    on_zero=ZeroData.WARN,
)


def test_the_example_of_everything_changes_every_field():
    unchanged = [
        field.name
        for field in dataclasses.fields(QuantizeConfig)
        if getattr(EVERYTHING, field.name) == getattr(QuantizeConfig(), field.name)
    ]
    assert unchanged == []


@pytest.mark.parametrize("config", [QuantizeConfig(), EVERYTHING], ids=["default", "everything"])
def test_yaml_round_trip(tmp_path, config):
    path = tmp_path / "config.yaml"
    path.write_text(config.dump())
    assert QuantizeConfig.load(path) == config


def test_yaml_holds_plain_values_only():
    plain = yaml.safe_load(EVERYTHING.dump())
    assert plain["requantize"] == "shift"
    assert plain["skip_conv_layers"] == [0, 3]
    assert plain["overrides"]["body.1"]["nbit_weight"] == 8


def test_a_file_names_only_what_it_changes(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("nbit_weight: 4\nbias_correction: none\nglobal_scale: 6\n")
    assert QuantizeConfig.load(path) == QuantizeConfig(
        nbit_weight=4, bias_correction=BiasCorrection.NONE, global_scale=6.0
    )


def test_an_empty_file_is_the_default(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("# nothing\n")
    assert QuantizeConfig.load(path) == QuantizeConfig()


def test_names_become_enums_and_lists_become_tuples_at_construction():
    config = QuantizeConfig(requantize="shift", bias_correction="full", skip=["a", "b"])
    assert config.requantize is RequantizeMode.SHIFT
    assert config.bias_correction is BiasCorrection.FULL
    assert config.skip == ("a", "b")


def test_overrides_may_be_plain_mappings():
    config = QuantizeConfig(overrides={"conv": {"nbit_weight": 4}})
    assert config.overrides == {"conv": LayerConfig(nbit_weight=4)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nbit_weight": 9}, "nbit_weight is 9; expected 2 to 8."),
        ({"nbit_weight": 1}, "nbit_weight is 1; expected 2 to 8."),
        ({"nbit_activation": 17}, "nbit_activation is 17; expected 2 to 16."),
        ({"nbit_input": 0}, "nbit_input is 0; expected 2 to 16."),
        ({"global_scale": 0}, "global_scale is 0.0; expected 1e-30 to 1e+30."),
        ({"global_scale": float("nan")}, "global_scale is nan; expected 1e-30 to 1e+30."),
        ({"bias_samples": 0}, "bias_samples is 0; expected 1 to 1e+06."),
        ({"max_samples": 0}, "max_samples is 0; expected 1 to 1e+09."),
        ({"profile_chunk": 0}, "profile_chunk is 0; expected 1 to 1e+06."),
        (
            {"skip_conv_layers": [1, -1]},
            "skip_conv_layers is (1, -1); indices count from 0 and are not negative.",
        ),
        ({"skip": "head"}, "skip is 'head'; expected a list."),
        ({"skip": [1]}, "skip is 1; expected str."),
        ({"nbit_weight": "8"}, "nbit_weight is '8'; expected int."),
        ({"nbit_weight": True}, "nbit_weight is True; expected int."),
        ({"per_channel": 1}, "per_channel is 1; expected bool."),
        ({"requantize": "int"}, "requantize is 'int'; expected one of ['float', 'fixed_point', "),
        ({"on_bad": "ignore"}, "on_bad is 'ignore'; expected one of ['error', 'skip']."),
        ({"overrides": ["conv"]}, "overrides is ['conv']; expected a mapping."),
        ({"overrides": {"conv": 4}}, "overrides.conv is 4; expected a mapping."),
        ({"overrides": {"conv": {"nbit_weight": 12}}}, "nbit_weight is 12; expected 2 to 8."),
        ({"overrides": {"conv": {"bits": 8}}}, "overrides.conv: unknown field(s) ['bits']; valid"),
        ({"estimator_options": {"mse": 3}}, "estimator_options.mse is 3; expected a mapping."),
        (
            {"estimator_options": {"norm": {"p": "two"}}},
            "estimator_options.norm.p is 'two'; expected float.",
        ),
        (
            {"bits": 8},
            "config: unknown field(s) ['bits']; valid fields are ['activation_estimator'",
        ),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(values, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        QuantizeConfig.from_dict(values)


@pytest.mark.parametrize("values", [{"nbit_weight": 9}, {"skip": "head"}, {"requantize": "int"}])
def test_the_constructor_is_as_strict_as_a_file(values):
    with pytest.raises(ConfigError, match=f"{next(iter(values))} is "):
        QuantizeConfig(**values)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"Cannot read config '.*absent.yaml': No such file"):
        QuantizeConfig.load(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "is no YAML: "),
        (b"\xff\xfe\xfa", "is no YAML: "),
        (b"- 1\n- 2\n", "holds a list; expected `field: value` lines."),
        (b"word", "holds a str; expected `field: value` lines."),
        (b"nbit_weight: 99", "nbit_weight is 99; expected 2 to 8."),
    ],
)
def test_a_file_that_is_no_config_is_refused(tmp_path, content, message):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(message)):
        QuantizeConfig.load(path)


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        QuantizeConfig().nbit_weight = 4


@pytest.mark.parametrize(
    ("pattern", "selected"),
    [
        ("layer1.0.conv1", True),
        ("layer1.*", True),
        ("layer[12].0.conv?", True),
        ("relax.nn.conv2d", True),
        ("layer1", False),
        ("LAYER1.*", False),
        ("conv1", False),
    ],
)
def test_patterns_select_by_node_or_operator(pattern, selected):
    assert matches(pattern, "layer1.0.conv1", "relax.nn.conv2d") is selected


def test_a_name_with_brackets_selects_itself():
    assert matches("block[0]/conv", "block[0]/conv")
