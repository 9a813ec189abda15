import re

import pytest

from tvm_quant.errors import ConfigError
from tvm_quant.hardware import HARDWARE, HardwareConfig, OperandGrids, grids, hardware_row
from tvm_quant.op import OP_SPECS, RequantizeMode, Role

S8 = grids("8SNsn")
OPERANDS = OperandGrids(data=S8, other=S8, weight=S8)


def row(**fields):
    return HardwareConfig(**{"name": "mine", "source": "here", "roles": {}, **fields})


def test_the_table_is_keyed_by_name():
    assert all(found.name == name for name, found in HARDWARE.items())
    assert set(HARDWARE) >= {
        "x86_vnni",
        "x86_avx2",
        "arm_dot",
        "cuda_dp4a",
        "vta",
        "npu",
        "generic",
    }


@pytest.mark.parametrize("found", HARDWARE.values(), ids=HARDWARE)
def test_a_row_names_its_source_and_runs_every_operator(found):
    assert found.source
    tables = {op for op, spec in OP_SPECS.items() if spec.role is Role.POINTWISE}
    floats = {op for op in OP_SPECS if not found.runs(op)}
    assert floats == (tables if found.name == "npu" else set())


@pytest.mark.parametrize("found", HARDWARE.values(), ids=HARDWARE)
@pytest.mark.parametrize("op", ["relax.nn.conv2d", "relax.matmul"])
def test_weights_are_signed_symmetric_and_narrow_everywhere(found, op):
    for grid in found.operands(op).weight:
        assert (grid.signed, grid.symmetric, grid.narrow) == (True, True, True)


def test_x86_multiplies_unsigned_by_signed():
    operands = hardware_row("x86_vnni").operands("relax.nn.conv2d")
    assert (operands.data, operands.other) == (grids("8ANu"), S8)


def test_vta_shifts():
    vta = hardware_row("vta")
    assert (vta.requantize, vta.power_of_two_scales) == (RequantizeMode.SHIFT, True)


def test_an_unknown_row_is_refused_with_the_names_there_are():
    with pytest.raises(ConfigError, match=re.escape(f"valid names are {sorted(HARDWARE)}")):
        hardware_row("x87")


@pytest.mark.parametrize("field", ["ops", "float_ops", "unified"])
def test_a_row_that_names_an_unknown_operator_is_refused(field):
    value = {"relax.nn.conv9d": OPERANDS} if field == "ops" else {"relax.nn.conv9d"}
    message = re.escape("Hardware row 'mine' names unknown operator(s) ['relax.nn.conv9d'].")
    with pytest.raises(ConfigError, match=message):
        row(**{field: value})


@pytest.mark.parametrize("empty", ["data", "other", "weight"])
def test_operands_without_a_grid_are_refused(empty):
    operands = {"data": S8, "other": S8, "weight": S8} | {empty: ()}
    with pytest.raises(ConfigError, match="each operand needs at least one grid"):
        OperandGrids(**operands)


def test_an_operator_has_grids_of_its_own_before_those_of_its_role():
    wide = OperandGrids(data=grids("16SN"), other=S8, weight=S8)
    mine = row(
        roles={Role.CONTRACTION: OPERANDS},
        ops={"relax.matmul": wide},
        float_ops=frozenset({"relax.nn.conv1d"}),
    )
    assert mine.operands("relax.matmul") is wide
    assert mine.operands("relax.nn.conv2d") is OPERANDS
    assert mine.operands("relax.nn.conv1d") is None
    assert mine.operands("relax.add") is None


def test_a_depthwise_convolution_may_have_grids_of_its_own():
    fine = OperandGrids(data=grids("8SC"), other=S8, weight=S8)
    mine = row(roles={Role.CONTRACTION: OPERANDS}, ops={"relax.nn.conv2d:depthwise": fine})
    assert mine.operands("relax.nn.conv2d", depthwise=True) is fine
    assert mine.operands("relax.nn.conv2d") is OPERANDS
    assert mine.operands("relax.nn.conv1d", depthwise=True) is OPERANDS
