"""`Program`, which a VTA runs, and `Builder`, which makes one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import Memory, VtaConfig
from tvm_quant.backend.vta.isa import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    Stage,
    Store,
    Token,
    decode_all,
    encode_all,
    pack_micro_ops,
)
from tvm_quant.errors import ProgramError, UnsupportedError

Array = npt.NDArray[Any]

VERSION = 1
PAGE_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Place:
    """Bytes of the image that belong together.

    Attributes:
        name: of the tensor or constant.
        offset: first byte in the image.
        size: bytes.
        shape: of the tensor; empty for a constant.
        constant: whether no instruction may write it.
    """

    name: str
    offset: int
    size: int
    shape: tuple[int, ...] = ()
    constant: bool = True


@dataclass(frozen=True, kw_only=True)
class Span:
    """Instructions [begin, end) of a layer."""

    layer: str
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """Instructions, and the DRAM with which they start.

    Attributes:
        config: of the VTA that runs it.
        base: address of the image.
        image: uint8 (bytes,): weights, biases, micro-ops, room for activations.
        instructions: in program order.
        places: what lies where in the image.
        spans: which instructions belong to which layer.
        inputs, outputs: names of places, in the order of the call.
        extended: whether it may use what only the functional simulator has.
    """

    config: VtaConfig
    base: int
    image: Array
    instructions: tuple[Instruction, ...]
    places: tuple[Place, ...]
    spans: tuple[Span, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    extended: bool = False

    @property
    def insns(self) -> Array:
        """The instructions as uint8 (n, 16)."""
        return encode_all(self.config, list(self.instructions))

    @property
    def meta(self) -> Array:
        """All the rest as JSON, uint8 (bytes,)."""
        values = {
            "version": VERSION,
            "config": self.config.to_json(),
            "digest": self.config.digest,
            "base": self.base,
            "places": [dataclasses.asdict(place) for place in self.places],
            "spans": [dataclasses.asdict(span) for span in self.spans],
            "inputs": self.inputs,
            "outputs": self.outputs,
            "extended": self.extended,
        }
        return np.frombuffer(json.dumps(values).encode(), np.uint8)

    @classmethod
    def from_arrays(cls, image: Array, insns: Array, meta: Array) -> Program:
        """The program that `image`, `insns` and `meta` were taken from.

        Raises:
            ProgramError: arrays that are damaged or from another version.
        """
        try:
            values = json.loads(np.asarray(meta, np.uint8).tobytes())
            version = values["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise ProgramError(f"VTA program: the meta data cannot be read: {error}.") from error
        if version != VERSION:
            raise ProgramError(
                f"VTA program: format {version}, expected {VERSION}: compile the module again."
            )
        config = VtaConfig.from_json(values["config"])
        if config.digest != values["digest"]:
            raise ProgramError(
                f"VTA program: hash {values['digest']} of the configuration, expected "
                f"{config.digest}: the meta data is damaged; compile the module again."
            )
        return cls(
            config=config,
            base=values["base"],
            image=image,
            instructions=tuple(decode_all(config, insns)),
            places=tuple(
                Place(**(place | {"shape": tuple(place["shape"])})) for place in values["places"]
            ),
            spans=tuple(Span(**span) for span in values["spans"]),
            inputs=tuple(values["inputs"]),
            outputs=tuple(values["outputs"]),
            extended=values["extended"],
        )

    def place(self, name: str) -> Place:
        """The place of that name."""
        return next(place for place in self.places if place.name == name)

    def layer_of(self, index: int) -> str:
        """Name of the layer that an instruction belongs to, or "" at the end."""
        found = (span.layer for span in self.spans if span.begin <= index < span.end)
        return next(found, "")


class Builder:
    """Collects instructions, micro-ops and the image of a program.

    Args:
        config: sizes.
        extended: whether to use what only the functional simulator has.
    """

    def __init__(self, config: VtaConfig, *, extended: bool = False):
        self.config, self.extended = config, extended
        self.instructions: list[Instruction] = []
        # Addresses count elements: all places start at multiples of the largest one.
        self._align = max(config.element_bytes(memory) for memory in Memory)
        self.base = max(PAGE_BYTES, self._align)
        self._places: list[Place] = []
        self._data: list[tuple[int, Array]] = []
        self._spans: list[Span] = []
        self._size = 0
        self._micro_op_places: dict[bytes, Place] = {}
        self._on_chip: dict[bytes, int] = {}
        self._chip_end = 0

    def allocate(self, name: str, size: int, shape: tuple[int, ...]) -> Place:
        """Room for a tensor."""
        return self._place(
            Place(name=name, offset=self._size, size=size, shape=shape, constant=False)
        )

    def constant(self, name: str, values: Array) -> Place:
        """Bytes that the program reads."""
        raw = np.ascontiguousarray(values).view(np.uint8).ravel()
        self._data.append((self._size, raw))
        return self._place(Place(name=name, offset=self._size, size=raw.size))

    def _place(self, place: Place) -> Place:
        self._places.append(place)
        self._size += -(-place.size // self._align) * self._align
        return place

    def address(self, place: Place, memory: Memory) -> int:
        """Address in DRAM in elements of a memory."""
        return (self.base + place.offset) // self.config.element_bytes(memory)

    def emit(self, instruction: Instruction) -> None:
        """Append an instruction."""
        self.instructions.append(instruction)

    @contextmanager
    def tokens(
        self, stage: Stage, *, wait: tuple[Token, ...] = (), signal: tuple[Token, ...] = ()
    ) -> Iterator[None]:
        """Of the stage's instructions in this block, the first waits and the last signals."""
        begin = len(self.instructions)
        yield
        own = [
            i for i in range(begin, len(self.instructions)) if self.instructions[i].stage is stage
        ]
        for token in wait:
            self._flag(own[0], token.pop_flag)
        for token in signal:
            self._flag(own[-1], token.push_flag)

    def _flag(self, index: int, flag: str, value: int = 1) -> None:
        self.instructions[index] = dataclasses.replace(self.instructions[index], **{flag: value})

    def retract(self, index: int, token: Token) -> None:
        """Take back that an instruction signals."""
        self._flag(index, token.push_flag, 0)

    @contextmanager
    def layer(self, name: str) -> Iterator[None]:
        """Instructions in this block belong to a layer."""
        begin = len(self.instructions)
        yield
        self._spans.append(Span(layer=name, begin=begin, end=len(self.instructions)))

    def micro_ops(self, dst: Array, src: Array | int, wgt: Array | int = 0) -> tuple[int, int]:
        """Micro-ops on the chip, loaded unless they are there: (begin, end)."""
        dst = np.atleast_1d(dst)
        source, weight = np.broadcast_to(src, dst.shape), np.broadcast_to(wgt, dst.shape)
        words = pack_micro_ops(self.config, dst, source, weight)
        key = words.tobytes()
        if key not in self._on_chip:
            self._load_micro_ops(key, words)
        begin = self._on_chip[key]
        return begin, begin + len(words)

    def _load_micro_ops(self, key: bytes, words: Array) -> None:
        budget = self.config.micro_op_budget(extended=self.extended)
        if len(words) > budget:
            raise UnsupportedError(
                f"VTA: {len(words)} micro-ops in one loop, expected at most {budget}."
            )
        if key not in self._micro_op_places:
            name = f"micro-ops {len(self._micro_op_places)}"
            self._micro_op_places[key] = self.constant(name, words)
        if self._chip_end + len(words) > budget:
            self._on_chip, self._chip_end = {}, 0
        address = self.address(self._micro_op_places[key], Memory.UOP)
        self.emit(
            Load(
                memory_type=Memory.UOP,
                sram_base=self._chip_end,
                dram_base=address,
                y_size=1,
                x_size=len(words),
                x_stride=len(words),
            )
        )
        self._on_chip[key] = self._chip_end
        self._chip_end += len(words)

    def load(
        self,
        memory: Memory,
        sram: int,
        dram: int,
        rows: int,
        columns: int,
        stride: int,
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> None:
        """LOAD a rectangle; pads at the top, bottom, left, right."""
        self.emit(
            Load(
                memory_type=memory,
                sram_base=sram,
                dram_base=dram,
                y_size=rows,
                x_size=columns,
                x_stride=stride,
                **dict(zip(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), pads, strict=True)),
            )
        )

    def store(self, sram: int, dram: int, rows: int, columns: int, stride: int) -> None:
        """STORE a rectangle."""
        self.emit(
            Store(
                memory_type=Memory.OUT,
                sram_base=sram,
                dram_base=dram,
                y_size=rows,
                x_size=columns,
                x_stride=stride,
            )
        )

    def reset(self, dst: int, count: int) -> None:
        """Zero `count` neighbouring sums."""
        begin, end = self.micro_ops(np.array([dst]), 0)
        self.emit(Gemm(uop_bgn=begin, uop_end=end, iter_in=count, dst_factor_in=1, reset_reg=1))

    def gemm(
        self,
        micro_ops: tuple[Array, Array | int, Array | int],
        outer: int,
        inner: int,
        *,
        dst: tuple[int, int],
        src: tuple[int, int],
        wgt: tuple[int, int],
    ) -> None:
        """GEMM; factors as (outer, inner)."""
        begin, end = self.micro_ops(*micro_ops)
        self.emit(
            Gemm(
                uop_bgn=begin,
                uop_end=end,
                iter_out=outer,
                iter_in=inner,
                **_factors(dst, src),
                wgt_factor_out=wgt[0],
                wgt_factor_in=wgt[1],
            )
        )

    def immediate(self, op: AluOp, imm: int, dst: int, count: int) -> None:
        """ALU with an immediate on `count` neighbouring sums."""
        begin, end = self.micro_ops(np.array([dst]), dst)
        self.emit(
            Alu(
                uop_bgn=begin,
                uop_end=end,
                iter_in=count,
                **_factors((0, 1), (0, 1)),
                alu_opcode=op,
                use_imm=1,
                imm=imm,
            )
        )

    def alu(
        self,
        op: AluOp,
        dst_base: Array | int,
        src_base: Array | int,
        outer: int,
        inner: int,
        *,
        dst: tuple[int, int],
        src: tuple[int, int],
    ) -> None:
        """ALU on two sums; factors as (outer, inner)."""
        begin, end = self.micro_ops(np.atleast_1d(dst_base), src_base)
        self.emit(
            Alu(
                uop_bgn=begin,
                uop_end=end,
                iter_out=outer,
                iter_in=inner,
                **_factors(dst, src),
                alu_opcode=op,
            )
        )

    def nop(
        self, stage: Stage, *, wait: tuple[Token, ...] = (), signal: tuple[Token, ...] = ()
    ) -> None:
        """An instruction that only handles tokens."""
        with self.tokens(stage, wait=wait, signal=signal):
            self.emit(_NOPS[stage])

    def finish(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Program:
        """End the program."""
        self.emit(Finish())
        image = np.zeros(self._size, np.uint8)
        for offset, raw in self._data:
            image[offset : offset + raw.size] = raw
        return Program(
            config=self.config,
            base=self.base,
            image=image,
            instructions=tuple(self.instructions),
            places=tuple(self._places),
            spans=tuple(self._spans),
            inputs=inputs,
            outputs=outputs,
            extended=self.extended,
        )


_NOPS: dict[Stage, Instruction] = {
    Stage.LOAD: Load(memory_type=Memory.INP),
    Stage.COMPUTE: Load(memory_type=Memory.UOP),
    Stage.STORE: Store(memory_type=Memory.OUT),
}


def _factors(dst: tuple[int, int], src: tuple[int, int]) -> dict[str, int]:
    names = ("dst_factor_out", "dst_factor_in", "src_factor_out", "src_factor_in")
    return dict(zip(names, (*dst, *src), strict=True))
