"""Running programs: `tvm_quant.vta.run`, which compiled modules call, on the simulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from tvm_quant.backend.vta.config import VtaConfig
from tvm_quant.backend.vta.layer import Tensor
from tvm_quant.backend.vta.layout import pack, unpack
from tvm_quant.backend.vta.program import Place, Program
from tvm_quant.backend.vta.sim import Simulator
from tvm_quant.errors import ProgramError
from tvm_quant.ir import constant

Array = npt.NDArray[Any]

RUN = "tvm_quant.vta.run"
CONSTANTS = 3  # image, insns, meta


@dataclass(frozen=True)
class Result:
    """Outputs of a program, int8, and the counters of the simulator."""

    outputs: list[Array]
    counters: Counter[str]


def run_program(
    program: Program, *inputs: Array, policy: str = "round-robin", seed: int = 0
) -> Result:
    """Run a program on the simulator.

    Args:
        inputs: int8, one for each of `program.inputs`, of its shape.
        policy: of `streams.POLICIES`: which unit goes first where several may.
        seed: of the memories' first content.

    Raises:
        ProgramError: inputs that do not fit, or a program that breaks a rule while it runs.
    """
    if len(inputs) != len(program.inputs):
        raise ProgramError(f"VTA program: {len(inputs)} inputs, expected {len(program.inputs)}.")
    dram = program.image.copy()
    for name, value in zip(program.inputs, inputs, strict=True):
        place = program.place(name)
        _check_input(place, value)
        packed = pack(program.config, value.reshape(_nchw(place)))
        dram[place.offset : place.offset + place.size] = packed.view(np.uint8).ravel()
    simulator = Simulator(program.config, dram, program.base, seed=seed)
    simulator.run(program.instructions, policy)
    outputs = [_read(program, dram, program.place(name)) for name in program.outputs]
    return Result(outputs, simulator.counters)


def _read(program: Program, dram: Array, place: Place) -> Array:
    data = dram[place.offset : place.offset + place.size]
    return unpack(program.config, data, _nchw(place)).reshape(place.shape)


def _nchw(place: Place) -> tuple[int, int, int, int]:
    return Tensor(name=place.name, shape=place.shape).nchw


def _check_input(place: Place, value: Array) -> None:
    if value.dtype != np.int8 or value.shape != place.shape:
        raise ProgramError(
            f"VTA program: input '{place.name}' is {value.dtype} {value.shape}, expected int8 "
            f"{place.shape}."
        )


@lru_cache(maxsize=8)
def _decoded(image: bytes, insns: bytes, meta: bytes) -> Program:
    return Program.from_arrays(
        np.frombuffer(image, np.uint8),
        np.frombuffer(insns, np.uint8).reshape(-1, 16),
        np.frombuffer(meta, np.uint8),
    )


def constants_of(program: Program) -> list[relax.Expr]:
    """What `run` takes between inputs and outputs."""
    return [constant(part) for part in (program.image, program.insns, program.meta)]


@tvm.register_global_func(RUN, override=True)
def run(*tensors: Any) -> None:
    """Called by compiled modules: int8 inputs, image, insns, meta, outputs; writes the outputs."""
    begin = next(index for index, tensor in enumerate(tensors) if tensor.dtype == "uint8")
    parts = tensors[begin : begin + CONSTANTS]
    program = _decoded(*(part.numpy().tobytes() for part in parts))
    result = run_program(program, *(tensor.numpy() for tensor in tensors[:begin]))
    for target, value in zip(tensors[begin + CONSTANTS :], result.outputs, strict=True):
        target.copyfrom(value)


def check_config(program: Program, config: VtaConfig) -> None:
    """Raise ProgramError where a program was made for another VTA."""
    if program.config != config:
        raise ProgramError(
            f"VTA program: made for configuration {program.config.digest}, this VTA has "
            f"{config.digest}: compile the module again for this one."
        )
