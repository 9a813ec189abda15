"""What is refused of one instruction alone, and of what a program computes, with its reason."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tvm_quant.backend.vta import Convolution, Region, Tensor
from tvm_quant.backend.vta.codegen import compile_region
from tvm_quant.backend.vta.codegen.isa import Alu, Instruction, Opcode
from tvm_quant.backend.vta.codegen.verify import verify
from tvm_quant.backend.vta.config import Memory
from tvm_quant.bench.vta_mutants import SMALL, regions
from tvm_quant.errors import BackendError


@cache
def compiled(name):
    (region,) = [region for region in regions() if region.name == name]
    return region, compile_region(region, SMALL)


def refused(condition, message, name="residual", which=0, **fields):
    """The program whose `which`-th instruction of a condition is changed is refused."""
    region, program = compiled(name)
    at = [at for at, one in enumerate(program.instructions) if condition(one)][which]
    one = program.instructions[at]
    changed = Instruction(opcode=one.opcode, fields={**one.fields, **fields}, label=one.label)
    instructions = (*program.instructions[:at], changed, *program.instructions[at + 1 :])
    where = rf"instruction {at}, {one.opcode.name} of layer '{one.label}': "
    with pytest.raises(BackendError, match=where + message):
        verify(replace(program, instructions=instructions), region)


def loads(memory):
    return lambda one: (
        one.opcode is Opcode.LOAD and one["memory_type"] == memory and one["x_size"] > 0
    )


def computes(operation, *, imm=True):
    return lambda one: (
        one.opcode is Opcode.ALU
        and one["alu_opcode"] == operation
        and bool(one["use_imm"]) == imm
        and one["imm"] >= 0
    )


def multiplies(one):
    return one.opcode is Opcode.GEMM and not one["reset_reg"]


def stores(one):
    return one.opcode is Opcode.STORE


@pytest.mark.parametrize(
    ("condition", "fields", "message"),
    [
        (loads(Memory.INP), {"y_pad_0": 16}, "VTA LOAD: field y_pad_0 is 16, which 4 bits"),
        (loads(Memory.INP), {"pop_prev": 1}, "pop_prev at stage LOAD, which has no such queue"),
        (loads(Memory.ACC), {"memory_type": 5}, "memory 5, which not every VTA loads"),
        (loads(Memory.WGT), {"x_pad_0": 1}, "pads WGT, which not every VTA does"),
        (loads(Memory.UOP), {"y_size": 2}, "2 rows of micro-ops"),
        (loads(Memory.INP), {"y_size": 0}, "moves no rows, which not every VTA does"),
        (stores, {"y_size": 0}, "moves no rows, which not every VTA does"),
        (stores, {"memory_type": 0}, "memory 0, padded: False; expected OUT"),
        (multiplies, {"uop_end": 2049}, "micro-ops .* to 2049, expected some of 2048"),
        (multiplies, {"iter_in": 0}, "loops of .* and 0, expected at least 1"),
        (computes(Alu.MIN), {"alu_opcode": Alu.MUL}, "ALU operation 4, which not every VTA has"),
        (computes(Alu.SHR), {"imm": 16}, "shifts by 16, expected -15 to 15"),
        (computes(Alu.SHR, imm=False), {"imm": 1}, "immediate 1 beside an operand"),
        (computes(Alu.MIN), {"src_factor_in": 0}, "src_factor_in is 0, expected 1 as of dst"),
    ],
)
def test_form(condition, fields, message):
    refused(condition, message, **fields)


def test_a_sum_does_not_come_again_before_a_pipeline_has_it():
    def copies(one):
        return multiplies(one) and one["uop_end"] - one["uop_bgn"] == 1

    refused(copies, "writes an element of ACC twice within 2 slots", dst_factor_in=0)


def test_shifts_by_an_operand_are_0_to_15():
    region, program = compiled("residual")
    instructions = list(program.instructions)
    shift = next(at for at, one in enumerate(instructions) if computes(Alu.SHR, imm=False)(one))
    bias, counts = [at for at in range(shift) if loads(Memory.ACC)(instructions[at])][-2:]
    fields = {**instructions[counts].fields, "dram_base": instructions[bias]["dram_base"]}
    instructions[counts] = replace(instructions[counts], fields=fields)
    with pytest.raises(BackendError, match="shifts by an operand that is not 0 to 15"):
        verify(replace(program, instructions=tuple(instructions)), region)


@pytest.mark.parametrize(
    ("condition", "fields", "message"),
    [
        (computes(Alu.MIN), {"imm": 126}, "stores to tensor 'first_out' what has other bounds"),
        (computes(Alu.SHR), {"imm": 8}, "stores to tensor 'first_out' what has another sum"),
        (computes(Alu.MAX), {"alu_opcode": Alu.ADD}, "does to a sum, after its shift"),
        (computes(Alu.MIN), {"alu_opcode": Alu.SHR}, "shifts by 127"),
        (multiplies, {"wgt_factor_in": 1}, "stores to tensor 'first_out' what has another sum"),
        (stores, {"sram_base": 1}, "stores to tensor 'first_out' what has another sum"),
        (stores, {"dram_base": 0x3000 // 16}, "writes beside tensor 'first_out'"),
        (loads(Memory.INP), {"x_pad_0": 0, "x_pad_1": 1}, "(reads|stores)"),
    ],
)
def test_meaning(condition, fields, message):
    if "x_pad_0" in fields or "wgt_factor_in" in fields or "sram_base" in fields:
        message = f"({message}|reads .* elements that nothing wrote|races)"
    region, program = compiled("residual")
    at = next(at for at, one in enumerate(program.instructions) if condition(one))
    one = program.instructions[at]
    changed = Instruction(opcode=one.opcode, fields={**one.fields, **fields}, label=one.label)
    instructions = (*program.instructions[:at], changed, *program.instructions[at + 1 :])
    with pytest.raises(BackendError, match=message):
        verify(replace(program, instructions=instructions), region)


def test_another_weight_in_the_image_is_noticed():
    region, program = compiled("rows")
    one = next(one for one in program.instructions if loads(Memory.WGT)(one))
    image = program.image.copy()
    image[one["dram_base"] * 256 - 0x1000] ^= 1
    with pytest.raises(BackendError, match="stores to tensor 'hidden_out' what has another sum"):
        verify(replace(program, image=image), region)


def test_other_elements_of_a_window_are_noticed():
    refused(
        stores,
        "(stores to tensor 'pool_out' what has other elements in its maxima|reads ACC)",
        "pool",
        sram_base=1,
    )


def test_what_is_never_stored_is_named():
    region, program = compiled("residual")
    instructions = tuple(
        Instruction(opcode=one.opcode, fields={**one.fields, "x_size": 0}, label=one.label)
        if one.opcode is Opcode.STORE and one.label == "second"
        else one
        for one in program.instructions
    )
    with pytest.raises(BackendError, match="elements of tensor 'second_out' are never stored"):
        verify(replace(program, instructions=instructions), region)


def test_sums_that_int32_does_not_hold_are_refused():
    layer = Convolution(
        name="wide",
        output="y",
        data="x",
        weight=np.full((16, 16, 1, 1), 127, np.int8),
        bias=np.int32([0] * 5 + [2**31 - 1] + [0] * 10),
        shift=8,
    )
    tensors = tuple(Tensor(name=name, shape=(1, 16, 2, 2)) for name in "xy")
    region = Region(name="r", tensors=tensors, layers=(layer,), inputs=("x",), outputs=("y",))
    with pytest.raises(BackendError, match="layer 'wide': sums of channel 5 reach from"):
        compile_region(region, SMALL)
