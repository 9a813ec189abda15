"""The static checks refuse every program that is broken in one place."""

from dataclasses import replace
from functools import cache

import pytest

import vta_networks as nets
from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.codegen.isa import FLAGS, PORTS, Instruction, Opcode, Stage
from tvm_quant.backend.vta.codegen.lower import compile_region
from tvm_quant.backend.vta.codegen.trace import kind_of
from tvm_quant.backend.vta.codegen.verify import verify
from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.partition import Part, partition
from tvm_quant.errors import BackendError


@cache
def program():
    """Two convolutions of several tiles and steps each, with a residual."""

    def body(emit, x):
        acc = nets.convolution(emit, x, nets.weights(20, 40, 3, 3), range(20), padding=1)
        y = emit(nets.scaled(acc, 9, low=0))
        acc = nets.convolution(emit, y, nets.weights(20, 20, 3, 3), range(20), padding=1)
        return emit(nets.scaled(nets.residual(emit, acc, y, [4] * 20), [8, 9] * 10))

    mod = nets.build(body, x=(1, 40, 6, 5))
    (part,) = [piece for piece in partition(mod["main"]) if isinstance(piece, Part)]
    small = VtaConfig(log_inp_buff_size=11, log_wgt_buff_size=14, log_acc_buff_size=12)
    return compile_region(part.region, small)


def changed(*changes):
    """The program with {place: fields} changed."""
    instructions = [
        Instruction(opcode=one.opcode, fields=dict(one.fields), label=one.label)
        for one in program().instructions
    ]
    for at, fields in changes:
        instructions[at].fields.update(fields)
    return replace(program(), instructions=tuple(instructions))


def places(condition):
    return [at for at, one in enumerate(program().instructions) if condition(one)]


def test_the_program_itself_passes_and_uses_both_halves():
    verify(program())
    steps = places(lambda one: one.stage is Stage.LOAD and one["pop_next"])
    assert len(steps) > 4 and len(program().instructions) < 200


def test_no_token_can_be_left_out_or_added():
    for at, one in enumerate(program().instructions):
        for flag in FLAGS:
            known = (one.stage, flag) in PORTS and one.opcode is not Opcode.FINISH
            if known and (one[flag] or at % 6 == 0):
                with pytest.raises(BackendError):
                    verify(changed((at, {flag: 1 - one[flag]})))


def test_without_the_barrier_the_second_layer_reads_what_is_not_yet_stored():
    """Pushes and pops still match; only the order is gone."""
    push, *_ = places(
        lambda one: one["push_prev"] and kind_of(one) == "NOP" and one.stage is Stage.COMPUTE
    )
    pop = next(at for at in places(lambda one: one.stage is Stage.LOAD) if at > push)
    with pytest.raises(BackendError, match="races with another stage"):
        verify(changed((push, {"push_prev": 0}), (pop, {"pop_next": 0})))


def test_inputs_are_not_overwritten_while_they_are_read():
    push = places(lambda one: one.opcode is Opcode.GEMM and one["push_prev"])[0]
    pop = places(lambda one: one.stage is Stage.LOAD and one["pop_next"])[0]
    with pytest.raises(BackendError, match="races with another stage for"):
        verify(changed((push, {"push_prev": 0}), (pop, {"pop_next": 0})))


@pytest.mark.parametrize(
    ("condition", "fields", "message"),
    [
        (lambda one: one.opcode is Opcode.STORE, {"dram_base": 1 << 28}, "reaches DRAM element"),
        (lambda one: one.opcode is Opcode.STORE, {"sram_base": 1 << 15}, "reaches ACC element"),
        (
            lambda one: one.opcode is Opcode.LOAD and one["memory_type"] == Memory.WGT,
            {"x_size": 1},
            "reads WGT elements that nothing wrote",
        ),
        (
            lambda one: one.opcode is Opcode.GEMM and one["reset_reg"],
            {"iter_in": 1},
            "reads ACC elements that nothing wrote",
        ),
    ],
)
def test_accesses_stay_where_something_was_written(condition, fields, message):
    with pytest.raises(BackendError, match=message):
        verify(changed((places(condition)[0], fields)))


def test_finish_comes_once_and_last():
    instructions = program().instructions
    for wrong in (instructions[:-1], (*instructions, instructions[-1])):
        with pytest.raises(BackendError, match="FINISH stands at"):
            verify(replace(program(), instructions=wrong))
