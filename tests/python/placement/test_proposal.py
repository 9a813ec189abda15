"""From a proposal to a setup: which grid each place gets."""

import re
from dataclasses import replace

import numpy as np
import pytest
from tvm import relax

from plain_tvm import build
from specs import S8, U8
from tvm_quant.config import PRESETS, LayerConfig, QuantizeConfig
from tvm_quant.errors import ConfigError
from tvm_quant.hardware import GENERIC, X86_VNNI, Grid, OperandGrids, grids
from tvm_quant.ir import with_node_names
from tvm_quant.op import NO_GROUP, Kind, QuantSpec, Role
from tvm_quant.placement import Quantizer, choose, layer_config, propose

OPS = relax.op
CONV = ("stem.conv", "relax.nn.conv2d")
S8_ROWS = QuantSpec(narrow=True, axis=0)


def conv(bb, x, name, channels=4):
    kernel = relax.const(np.ones((channels, 4, 1, 1), "float32"))
    return bb.emit(OPS.nn.conv2d(x, kernel), name)


def chain(bb, x):
    return conv(bb, bb.emit(OPS.nn.relu(conv(bb, x, "conv")), "relu"), "last")


def joined(bb, x):
    both = bb.emit(OPS.concat([x, conv(bb, x, "conv")], axis=1), "both")
    kernel = relax.const(np.ones((4, 8, 1, 1), "float32"))
    return bb.emit(OPS.nn.conv2d(both, kernel), "last")


def setup(body, hardware=X86_VNNI, **config):
    config = QuantizeConfig(**config)
    func = with_node_names(build(body, x=(1, 4, 8, 8))["main"], {"conv": "stem.conv"})
    return choose(propose(func, hardware, config), config)


def specs(body=chain, hardware=X86_VNNI, **config):
    """{place: spec}."""
    quantizers = setup(body, hardware, **config).quantizers
    return {str(place): quantizer.spec for place, quantizer in quantizers.items()}


def test_the_first_grid_is_chosen():
    found = setup(chain)
    assert {str(place): quantizer for place, quantizer in found.quantizers.items()} == {
        "out(x)": Quantizer(spec=U8, kind=Kind.INPUT),
        "in(conv,1)": Quantizer(spec=S8_ROWS, kind=Kind.WEIGHT),
        "out(relu)": Quantizer(spec=U8, kind=Kind.ACTIVATION),
        "in(last,1)": Quantizer(spec=S8_ROWS, kind=Kind.WEIGHT),
    }


def test_widths_come_from_the_config():
    found = specs(nbit_input=16, nbit_activation=4, nbit_weight=3)
    assert {place: spec.bits for place, spec in found.items()} == {
        "out(x)": 16,
        "in(conv,1)": 3,
        "out(relu)": 4,
        "in(last,1)": 3,
    }


def test_weights_have_one_scale_without_per_channel():
    assert specs(per_channel=False)["in(conv,1)"] == QuantSpec(bits=8, narrow=True)


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
    assert (found["out(x)"], found["out(relu)"]) == (spec, spec)
    assert found["in(conv,1)"].symmetric


def test_a_signed_symmetric_grid_can_be_made_affine():
    found = specs(hardware=GENERIC, symmetric_activations=False)
    assert found["out(x)"] == QuantSpec(bits=8, signed=True, narrow=False, symmetric=False)


def row(code):
    """A row whose operators accept these grids."""
    operands = OperandGrids(data=grids(code), other=grids(code), weight=grids("8SCsn"))
    return replace(X86_VNNI, name="mine", roles=dict.fromkeys(Role, operands))


@pytest.mark.parametrize(("preset", "code"), [("performance", "8SNsn"), ("mixed", "8ANu")])
def test_a_preset_takes_the_grids_of_its_mode(preset, code):
    found = specs(hardware=row("4ANs 8SNsn 8ANu"), **PRESETS[preset])
    assert str(Grid.of(found["out(x)"])) == code


def test_the_width_of_the_config_comes_before_the_order_of_the_row():
    mine = row("4SNsn 8ANu")
    assert specs(hardware=mine)["out(x)"] == U8
    assert specs(hardware=mine, nbit_activation=4, nbit_input=4)["out(x)"] == replace(S8, bits=4)


def test_a_free_sign_follows_what_is_known_of_the_range():
    found = specs(hardware=row("8SN"))
    assert (found["out(x)"].signed, found["out(relu)"].signed) == (True, False)


def test_places_that_share_a_scale_share_a_free_sign():
    def body(bb, x):
        y = bb.emit(OPS.nn.relu(conv(bb, x, "conv")), "relu")
        both = bb.emit(OPS.concat([y, conv(bb, x, "signed")], axis=1), "both")
        kernel = relax.const(np.ones((4, 8, 1, 1), "float32"))
        return bb.emit(OPS.nn.conv2d(both, kernel), "last")

    found = specs(body, row("8SN"))
    assert found["out(relu)"] == found["out(signed)"] == QuantSpec()


def test_one_scale_per_channel_stands_on_the_channels_of_the_reader():
    found = specs(hardware=row("8SC"))
    assert (found["out(x)"].axis, found["out(relu)"].axis) == (1, 1)


def test_an_override_changes_the_layers_it_selects():
    layer = LayerConfig(nbit_activation=16, nbit_weight=4, per_channel=False)
    found = specs(overrides={"stem.*": layer})
    assert {place: (spec.bits, spec.axis) for place, spec in found.items()} == {
        "in(conv,0)": (16, None),
        "in(conv,1)": (4, None),
        "out(relu)": (8, None),
        "in(last,1)": (8, 0),
    }


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
        "overrides: pattern 'head' matches no quantized layer; layers are ['last', 'stem.conv']."
    )
    with pytest.raises(ConfigError, match=message):
        specs(overrides={"head": LayerConfig(nbit_weight=4)})


def test_places_that_share_a_grid_get_one_group_and_the_widest_grid():
    found = setup(joined, nbit_input=16, nbit_activation=8)
    shared = {str(p): q for p, q in found.quantizers.items() if q.kind is not Kind.WEIGHT}
    assert {place: quantizer.spec.bits for place, quantizer in shared.items()} == {
        "out(x)": 16,
        "out(conv)": 16,
    }
    assert len({quantizer.group for quantizer in shared.values()}) == 1
    assert NO_GROUP not in {quantizer.group for quantizer in shared.values()}
