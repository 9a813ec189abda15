"""A functional simulator with a model of time.

Instructions run stage by stage as their tokens allow, never in program order. A stage is free when
its last instruction has ended; an instruction starts when it is free and its tokens are there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.codegen.isa import PORTS, Alu, Instruction, Opcode, Stage
from tvm_quant.backend.vta.codegen.policy import Policy, load_first
from tvm_quant.backend.vta.codegen.program import BASE, Place, Program
from tvm_quant.backend.vta.config import Memory, VtaConfig
from tvm_quant.errors import BackendError

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The model of time, in cycles.

    Attributes:
        latency: of a load or store.
        bus_bytes: that move in a cycle.
        setup: of a GEMM or ALU instruction.
    """

    latency: int = 16
    bus_bytes: int = 8
    setup: int = 4


@dataclass(frozen=True, kw_only=True)
class Event:
    """When an instruction ran, in cycles."""

    instruction: Instruction
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a simulation gave.

    Attributes:
        outputs: int8, in the shapes of the region.
        events: one an instruction, by start.
        gemm_steps: products of a vector and a matrix.
        alu_steps: vectors that the ALU computed.
        loaded: bytes by memory, as on the chip: int8 that becomes int32 counts four times.
        stored: bytes.
    """

    outputs: list[Array]
    events: list[Event]
    gemm_steps: int
    alu_steps: int
    loaded: Mapping[Memory, int]
    stored: int

    @property
    def cycles(self) -> int:
        """From the first instruction to the last."""
        return max(event.end for event in self.events)


def simulate(
    program: Program,
    inputs: Sequence[Array],
    timing: Timing | None = None,
    *,
    policy: Policy = load_first,
) -> Run:
    """Run a program on int8 inputs.

    Args:
        inputs: in the shapes of the region.
        timing: the model of time.
        policy: which stage of those that could go on does; it must make no difference.

    Raises:
        BackendError: the program deadlocks, leaves tokens, or reaches beyond its memories.
    """
    return simulate_image(program, inputs, timing, policy=policy)[1]


def simulate_image(
    program: Program,
    inputs: Sequence[Array] = (),
    timing: Timing | None = None,
    *,
    policy: Policy = load_first,
) -> tuple[Array, Run]:
    """(DRAM afterwards, what `simulate` returns)."""
    machine = _Machine(program, timing or Timing())
    for place, value in zip(program.inputs, inputs, strict=True):
        machine.write(place, value)
    machine.run(policy)
    run = Run(
        outputs=[machine.read(place) for place in program.outputs],
        events=sorted(machine.events, key=lambda event: event.start),
        gemm_steps=machine.gemm_steps,
        alu_steps=machine.alu_steps,
        loaded=machine.loaded,
        stored=machine.stored,
    )
    return machine.dram, run


@dataclass
class _Tokens:
    queues: dict[str, deque[int]] = field(
        default_factory=lambda: {name: deque() for name in ("l2g", "g2l", "g2s", "s2g")}
    )


class _Machine:
    def __init__(self, program: Program, timing: Timing):
        self.config: VtaConfig = program.config
        self.timing = timing
        self.dram = np.array(program.image)
        self.events: list[Event] = []
        self.gemm_steps = self.alu_steps = self.stored = 0
        self.loaded = dict.fromkeys((Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC), 0)
        self.queues = {
            stage: deque(one for one in program.instructions if one.stage is stage)
            for stage in Stage
        }
        self.tokens = _Tokens().queues
        lanes = self.config.block
        rng = np.random.default_rng(0)  # on-chip memories start as garbage
        depth = self.config.depth
        self.uop = rng.integers(0, 2**32, depth(Memory.UOP), np.uint32)
        self.wgt = rng.integers(-128, 128, (depth(Memory.WGT), lanes, lanes), np.int8)
        self.inp = rng.integers(-128, 128, (depth(Memory.INP), lanes), np.int8)
        self.acc = rng.integers(-(2**31), 2**31, (depth(Memory.ACC), lanes)).astype(np.int32)

    # DRAM ------------------------------------------------------------------------

    def _tensor(self, place: Place) -> Array:
        n, c, h, w = place.shape
        lanes = self.config.block
        blocks = -(-c // lanes)
        start = place.address - BASE
        data = self.dram[start : start + n * blocks * h * w * lanes].view(np.int8)
        return data.reshape(n, blocks, h, w, lanes)

    def write(self, place: Place, value: Array) -> None:
        n, c, h, w = place.shape
        lanes = self.config.block
        padded = np.zeros((n, -(-c // lanes) * lanes, h, w), np.int8)
        padded[:, :c] = np.asarray(value).reshape(place.shape)
        self._tensor(place)[:] = padded.reshape(n, -1, lanes, h, w).transpose(0, 1, 3, 4, 2)

    def read(self, place: Place) -> Array:
        n, c, h, w = place.shape
        packed = self._tensor(place).transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)
        return np.ascontiguousarray(packed[:, :c]).reshape(place.declared)

    def _elements(self, memory: Memory, one: Instruction) -> Array:
        """The DRAM rows of a load or store, as bytes (y, x, element)."""
        size = self.config.element_bytes(memory)
        start = one["dram_base"] * size - BASE
        rows, columns, stride = one["y_size"], one["x_size"], one["x_stride"] * size
        end = start + (rows - 1) * stride + columns * size if rows else start
        if not 0 <= start <= end <= len(self.dram):
            raise BackendError(f"VTA: {one.opcode.name} of {one.label} leaves the image.")
        return np.lib.stride_tricks.as_strided(
            self.dram[start:], (rows, columns, size), (stride, size, 1)
        )

    # Time ------------------------------------------------------------------------

    def run(self, policy: Policy) -> None:
        orders = policy()
        free = dict.fromkeys(Stage, 0)
        while any(self.queues.values()):
            order = next(orders)
            if not any(self.queues[stage] and self._try(stage, free) for stage in order):
                waiting = {stage.name: queue[0] for stage, queue in self.queues.items() if queue}
                raise BackendError(f"VTA: the program deadlocks; waiting are {waiting}.")
        left = {name: len(queue) for name, queue in self.tokens.items() if queue}
        if left:
            raise BackendError(f"VTA: the program leaves tokens {left}.")

    def _try(self, stage: Stage, free: dict[Stage, int]) -> bool:
        one = self.queues[stage][0]
        pops = [q for (s, flag), q in PORTS.items() if s is stage and "pop" in flag and one[flag]]
        if any(not self.tokens[queue] for queue in pops):
            return False
        start = max([free[stage], *(self.tokens[queue].popleft() for queue in pops)])
        self.queues[stage].popleft()
        end = start + self._execute(one)
        for (s, flag), queue in PORTS.items():
            if s is stage and "push" in flag and one[flag]:
                self.tokens[queue].append(end)
        free[stage] = end
        self.events.append(Event(instruction=one, start=start, end=end))
        return True

    def _execute(self, one: Instruction) -> int:
        """Do it, and say how many cycles it takes."""
        if one.opcode is Opcode.FINISH:
            return 1
        if one.opcode in (Opcode.LOAD, Opcode.STORE):
            return self._move(one)
        return self._gemm(one) if one.opcode is Opcode.GEMM else self._alu(one)

    def _move(self, one: Instruction) -> int:
        if not one["x_size"]:
            return 1
        memory = Memory(one["memory_type"])
        data = self._elements(memory, one)
        if one.opcode is Opcode.STORE:
            count = one["y_size"] * one["x_size"]
            rows = self._range(self.acc, one["sram_base"], count)
            data[:] = rows.astype(np.int8).view(np.uint8).reshape(data.shape)
            self.stored += data.size
        else:
            self._load(memory, one, data)
        moved = data.size
        return self.timing.latency + -(-moved // self.timing.bus_bytes)

    def _load(self, memory: Memory, one: Instruction, data: Array) -> None:
        target, kind = {
            Memory.UOP: (self.uop, np.uint32),
            Memory.WGT: (self.wgt, np.int8),
            Memory.INP: (self.inp, np.int8),
            Memory.ACC: (self.acc, np.int32),
            Memory.ACC_8BIT: (self.acc, np.int32),
        }[memory]
        into = Memory.ACC if memory is Memory.ACC_8BIT else memory
        self.loaded[into] += data.size // data.shape[2] * self.config.element_bytes(into)
        if memory is Memory.ACC_8BIT:
            data = np.ascontiguousarray(data.view(np.int8).astype(np.int32)).view(np.uint8)
        pads = (one["y_pad_0"], one["y_pad_1"]), (one["x_pad_0"], one["x_pad_1"]), (0, 0)
        padded = np.pad(data, pads)
        count = padded.shape[0] * padded.shape[1]
        rows = self._range(target, one["sram_base"], count)
        rows[:] = np.ascontiguousarray(padded).reshape(-1).view(kind).reshape(rows.shape)

    def _range(self, memory: Array, start: int, count: int) -> Array:
        if start + count > len(memory):
            raise BackendError(f"VTA: an access to {start} + {count} of {len(memory)} elements.")
        return memory[start : start + count]

    def _indices(self, one: Instruction, with_weight: bool) -> tuple[Array, Array, Array]:
        ops = self.uop[one["uop_bgn"] : one["uop_end"]].astype(np.int64)
        bits = self.config.index_bits(Memory.ACC)
        mask = (1 << bits) - 1
        outer = np.arange(one["iter_out"])[:, None, None]
        inner = np.arange(one["iter_in"])[None, :, None]
        fields = (("dst", ops & mask), ("src", ops >> bits & mask), ("wgt", ops >> 2 * bits))
        found = [
            (base + outer * one[f"{n}_factor_out"] + inner * one[f"{n}_factor_in"]).reshape(-1)
            for n, base in (fields if with_weight else fields[:2])
        ]
        return found[0], found[1], found[2] if with_weight else found[0]

    def _gemm(self, one: Instruction) -> int:
        dst, src, wgt = self._indices(one, with_weight=True)
        if one["reset_reg"]:
            self.acc[dst] = 0
        else:
            self._multiply(dst, src, wgt)
            self.gemm_steps += len(dst)
        return len(dst) + self.timing.setup

    def _multiply(self, dst: Array, src: Array, wgt: Array) -> None:
        """By weight: the rows that one matrix multiplies are one product, exact in float32."""
        order = np.argsort(wgt, kind="stable")
        bounds = np.flatnonzero(np.diff(wgt[order])) + 1
        inputs, weights = self.inp.astype(np.float32), self.wgt.astype(np.float32)
        for rows in np.split(order, bounds):
            products = inputs[src[rows]] @ weights[wgt[rows[0]]].T
            if len(np.unique(dst[rows])) < len(rows):
                np.add.at(self.acc, dst[rows], products.astype(np.int32))
            else:
                self.acc[dst[rows]] += products.astype(np.int32)

    def _alu(self, one: Instruction) -> int:
        dst, src, _ = self._indices(one, with_weight=False)
        self.alu_steps += len(dst)
        imm = bool(one["use_imm"])
        cost = len(dst) * (1 if imm else 2) + self.timing.setup
        operation = _ALU[Alu(one["alu_opcode"])]
        alike = len(np.unique(dst)) < len(dst) or (not imm and np.intersect1d(dst, src).size)
        steps = zip(dst[:, None], src[:, None], strict=True) if alike else [(dst, src)]
        for into, source in steps:
            right: Any = np.int32(one["imm"]) if imm else self.acc[source]
            self.acc[into] = operation(self.acc[into], right)
        return cost


def _shift(left: Array, right: Any) -> Array:
    right = np.asarray(right)
    return np.asarray(np.where(right >= 0, left >> right.clip(0), left << (-right).clip(0)))


_ALU: dict[Alu, Callable[[Array, Any], Array]] = {
    Alu.MIN: np.minimum,
    Alu.MAX: np.maximum,
    Alu.ADD: np.add,
    Alu.SHR: _shift,
    Alu.MUL: np.multiply,
}
