"""Quantizers as text: golden files of what stands where, for networks and hardware rows."""

import re

import pytest

from placed_networks import BODIES, placed_network
from small_networks import calibrated_network
from tvm_quant import demo, frontend
from tvm_quant.artifact import calibration_table, network_of
from tvm_quant.config import LayerConfig, QuantizeConfig
from tvm_quant.errors import ArtifactError
from tvm_quant.hardware import Grid
from tvm_quant.ir import with_node_names
from tvm_quant.op import QuantSpec
from tvm_quant.report import quantizer_text
from tvm_quant.transform import Annotate, Prepare

SMALL = network_of(calibrated_network())


def annotated_text(mod, **config):
    return quantizer_text(network_of(Annotate(QuantizeConfig(**config))(mod)))


@pytest.mark.parametrize("hardware", ["x86_vnni", "arm_dot", "vta"])
@pytest.mark.parametrize("name", BODIES)
def test_quantizers_of_a_small_network(golden, name, hardware):
    golden(f"{name}_{hardware}", annotated_text(placed_network(name), hardware=hardware))


def test_quantizers_of_the_digits_network_in_the_default_config(golden):
    mod, params = frontend.load(demo.model_path())
    golden("digits", annotated_text(Prepare(params)(mod)))


def test_a_line_holds_place_grid_role_and_source():
    assert quantizer_text(SMALL) == (
        "stem.conv:0 conv2d 8ANu input <- x\nstem.conv:1 conv2d 8SCsn weight <- constant, axis 0\n"
    )


def test_scales_have_three_digits():
    mod = calibrated_network()
    assert quantizer_text(SMALL, calibration_table(mod)) == (
        "stem.conv:0 conv2d 8ANu input <- x, scale 0.02, zero 128\n"
        "stem.conv:1 conv2d 8SCsn weight <- constant, axis 0, scale 0.00422 .. 0.0183, zero 0\n"
    )


def test_a_quantizer_without_scale_says_so():
    mod = Annotate()(placed_network("depthwise"))
    text = quantizer_text(network_of(mod), calibration_table(mod))
    assert text.splitlines()[0] == "expand:0 conv2d 8ANu input <- x, not calibrated"


def test_the_table_of_another_network_is_refused():
    table = calibration_table(Annotate()(placed_network("depthwise")))
    message = re.escape(
        "the calibration table is not of this network: at 'stem.conv' it has 'expand'"
    )
    with pytest.raises(ArtifactError, match=message):
        quantizer_text(SMALL, table)


def test_calls_of_one_node_are_told_apart():
    mod = placed_network("residual")
    mod["main"] = with_node_names(mod["main"], {"stem": "conv", "body": "conv", "head": "last"})
    places = [line.split()[0] for line in annotated_text(mod).splitlines()]
    assert places == ["conv:0", "conv:1", "conv#2:0", "conv#2:1", "total:1", "last:0", "last:1"]


def test_widths_of_the_config_are_shown():
    layer = LayerConfig(nbit_weight=4, nbit_activation=6, per_channel=False)
    assert annotated_text(placed_network("depthwise"), overrides={"depthwise": layer}) == (
        "expand:0 conv2d 8ANu input <- x\n"
        "expand:1 conv2d 8SCsn weight <- constant, axis 0\n"
        "depthwise:0 conv2d 6ANu activation <- expand_relu\n"
        "depthwise:1 conv2d 4SNsn weight <- constant\n"
        "project:0 conv2d 8ANu activation <- depthwise_relu\n"
        "project:1 conv2d 8SCsn weight <- constant, axis 0\n"
    )


def test_groups_are_numbered_in_the_order_they_appear():
    lines = annotated_text(placed_network("concat")).splitlines()
    assert [line for line in lines if "group" in line] == [
        "pooled:0 max_pool2d 8ANu activation <- middle_relu, group 0",
        "both:0 concat 8ANu activation <- left_relu, group 0",
        "both:1 concat 8ANu activation <- right_relu, group 0",
    ]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (QuantSpec(), "8SNs"),
        (QuantSpec(signed=False, symmetric=False), "8ANu"),
        (QuantSpec(bits=4, narrow=True, axis=1), "4SCsn"),
        (QuantSpec(bits=16, signed=False), "16SNu"),
    ],
)
def test_grids_in_short(spec, code):
    assert str(Grid.of(spec)) == code
