"""The Relay spelling maps to the public API and checks what Relay ignored."""

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_quant
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import ConfigError
from tvm_quant.ir import bindings, op_name
from tvm_relay import quantize


def network(convolutions: int = 2) -> tvm.IRModule:
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 6, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(convolutions):
                weight = relax.const(rng.normal(0, 0.2, (4, 4, 3, 3)).astype("float32"))
                value = builder.emit(relax.op.nn.conv2d(value, weight, padding=1))
            value = builder.emit(relax.op.reshape(value, (1, 144)))
            dense = relax.const(rng.normal(0, 0.1, (144, 5)).astype("float32"))
            value = builder.emit_output(relax.op.matmul(value, dense))
        builder.emit_func_output(value)
    return builder.get()


def integer_layers(mod: tvm.IRModule) -> list[str]:
    return [
        op_name(binding.value)
        for binding in bindings(mod["main"])
        if op_name(binding.value) in ("relax.nn.conv2d", "relax.matmul")
        and str(binding.var.ty.dtype) == "int32"
    ]


def test_qconfig_becomes_the_same_quantize_config():
    with quantize.qconfig(
        calibrate_mode="kl_divergence",
        weight_scale="max",
        skip_conv_layers=None,
        skip_dense_layer=False,
        dtype_input="uint8",
        nbit_weight=4,
    ) as config:
        assert quantize.current_qconfig() is config
        assert config.to_config() == QuantizeConfig(
            hardware="x86_vnni",
            activation_estimator="kl_symmetric",
            weight_estimator="max",
            nbit_weight=4,
        )


@pytest.mark.parametrize(
    ("mode", "estimator"),
    [("kl_divergence", "kl_symmetric"), ("kl", "kl_divergence"), ("percentile", "percentile")],
)
def test_modes_are_estimators_and_old_names_mean_what_they_meant(mode, estimator):
    assert quantize.QConfig(calibrate_mode=mode).to_config().activation_estimator == estimator


def test_defaults_are_relays_inside_and_outside_a_block():
    assert quantize.current_qconfig() == quantize.QConfig()
    with quantize.qconfig():
        assert quantize.current_qconfig() == quantize.QConfig()
    assert quantize.QConfig().skip_conv_layers == (0,)
    assert quantize.QConfig().to_config().global_scale == 8.0


def test_blocks_nest_and_restore():
    with quantize.qconfig(global_scale=4.0):
        inner = quantize.qconfig(global_scale=2.0)
        with inner as config:
            assert quantize.current_qconfig() is config
            assert config.global_scale == 2.0
        assert quantize.current_qconfig().global_scale == 4.0
    assert quantize.current_qconfig().global_scale == 8.0


def test_the_first_convolution_and_dense_layers_stay_in_float_by_default():
    assert integer_layers(quantize.quantize(network())) == ["relax.nn.conv2d"]


def test_skip_lists_can_be_emptied():
    with quantize.qconfig(skip_conv_layers=[], skip_dense_layer=False):
        layers = integer_layers(quantize.quantize(network()))
    assert layers == ["relax.nn.conv2d", "relax.nn.conv2d", "relax.matmul"]


def test_the_default_skip_does_not_trouble_a_network_without_convolutions():
    with quantize.qconfig(skip_dense_layer=False):
        assert integer_layers(quantize.quantize(network(convolutions=0))) == ["relax.matmul"]


def test_dataset_modes_calibrate_as_the_public_api_does():
    data = np.random.default_rng(1).normal(0, 1, (8, 4, 6, 6)).astype("float32")
    dataset = [{"x": sample[None]} for sample in data]
    with quantize.qconfig(calibrate_mode="percentile", weight_scale="max") as config:
        actual = quantize.quantize(network(), None, dataset)
    expected = tvm_quant.quantize(network(), None, dataset, config.to_config())
    tvm.ir.assert_structural_equal(actual, expected)


def test_unknown_fields_are_refused():
    refused = pytest.raises(ConfigError, match=r"unknown field\(s\) \['skip_dense_layers'\]")
    with refused, quantize.qconfig(skip_dense_layers=True):
        pass


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"calibrate_mode": "entropy"}, "calibrate_mode is 'entropy'; expected one of"),
        ({"weight_scale": "min"}, "weight_scale is 'min'"),
        ({"rounding": "foo"}, "rounding is 'foo'"),
        ({"nbit_input": 1}, "nbit_input is 1; expected 2 to 16"),
        ({"global_scale": 0.0}, "global_scale is 0.0"),
        ({"nbit_activation": 16}, "sums are exact in 32 bits"),
        ({"round_for_shift": False}, "round_for_shift=False is not supported"),
        ({"dtype_activation": "int16"}, "dtype_activation is 'int16'"),
    ],
)
def test_bad_values_are_refused_up_front(settings, message):
    with pytest.raises(ConfigError, match=message), quantize.qconfig(**settings):
        pass


def test_a_mode_that_needs_data_says_so():
    needs_data = pytest.raises(ConfigError, match="calibrate_mode='kl_divergence' needs a dataset")
    with quantize.qconfig(calibrate_mode="kl_divergence"), needs_data:
        quantize.quantize(network())


def test_what_relay_did_not_have_is_a_keyword_more():
    with quantize.qconfig(calibrate_mode="mse", per_channel=False, hardware="x86_avx2") as config:
        made = config.to_config()
    assert (made.activation_estimator, made.per_channel, made.hardware) == (
        "mse",
        False,
        "x86_avx2",
    )


def test_operators_go_by_the_names_of_relay_or_relax():
    names = ["nn.conv2d", "nn.dense", "concatenate", "relax.add"]
    with quantize.qconfig(debug_enabled_ops=names) as config:
        assert config.to_config().only == (
            "relax.nn.conv2d",
            "relax.matmul",
            "relax.concat",
            "relax.add",
        )


def test_kinds_have_the_numbers_and_names_of_relay():
    names = [quantize.kind2str(kind) for kind in range(4)]
    assert names == ["identity", "input", "weight", "activation"]
    assert quantize.QAnnotateKind.ACTIVATION == 3
