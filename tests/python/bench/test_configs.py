import pytest

from tvm_quant import BiasCorrection, QuantizeConfig
from tvm_quant.bench.configs import TABLE, config_of
from tvm_quant.errors import ConfigError


def test_default_is_the_default_config():
    assert config_of("default") == QuantizeConfig()


def test_parts_set_the_estimator_and_any_field():
    assert config_of("kl+bias_correction=none+per_channel=false") == QuantizeConfig(
        activation_estimator="kl_divergence", bias_correction=BiasCorrection.NONE, per_channel=False
    )


def test_the_needs_of_a_network_hold_unless_the_name_overrides_them():
    needs = {"on_bad": "skip", "per_channel": False}
    expected = QuantizeConfig.from_dict({"on_bad": "skip", "per_channel": True})
    assert config_of("per_channel=true", needs) == expected


def test_a_part_that_means_nothing_is_refused_with_the_estimators():
    with pytest.raises(ConfigError, match=r"'speedy' is neither .* minmax"):
        config_of("speedy")


def test_the_table_crosses_estimators_bias_corrections_and_granularities():
    assert len({config_of(name).dump() for name in TABLE}) == 5 * 3 * 2
