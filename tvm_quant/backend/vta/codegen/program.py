"""A program: the DRAM that it starts from, its instructions, and where its tensors lie."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.codegen.isa import Instruction, Opcode, decode, encode
from tvm_quant.backend.vta.config import Memory, VtaConfig
from tvm_quant.errors import BackendError

Array = npt.NDArray[Any]
Shape = tuple[int, int, int, int]

BASE = 0x1000  # of the image; page 0 is invalid
PAGE = 4096
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a tensor of a region lies: [N][C / block][H][W][block].

    Attributes:
        address: bytes, from 0.
        shape: (N, C, H, W); declared: as the region has it.
    """

    address: int
    shape: Shape
    declared: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a VTA runs.

    Attributes:
        config: sizes of the VTA.
        image: uint8, DRAM from `BASE` on.
        instructions: in order; `labels` says of each which layer it is of.
        inputs, outputs: places, in the order of the call.
        tensors: places of all tensors by name; what runs does not need them.
    """

    config: VtaConfig
    image: Array
    instructions: tuple[Instruction, ...]
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    tensors: Mapping[str, Place] = field(default_factory=dict)

    def encoded(self) -> Array:
        """uint8 (n, 16)."""
        data = b"".join(encode(one, self.config) for one in self.instructions)
        return np.frombuffer(data, np.uint8).reshape(-1, 16)

    def meta(self) -> Array:
        """What the arrays do not say, as JSON: uint8."""
        record = {
            "version": VERSION,
            "config": self.config.to_json(),
            "inputs": [[p.address, p.shape, p.declared] for p in self.inputs],
            "outputs": [[p.address, p.shape, p.declared] for p in self.outputs],
            "labels": _runs([one.label for one in self.instructions]),
        }
        return np.frombuffer(json.dumps(record).encode(), np.uint8)

    @classmethod
    def decoded(cls, image: Array, instructions: Array, meta: Array) -> Program:
        """Inverse of `image`, `encoded` and `meta`.

        Raises:
            BackendError: of another version.
        """
        record = json.loads(np.asarray(meta).tobytes())
        if record["version"] != VERSION:
            raise BackendError(
                f"VTA program of version {record['version']}, expected {VERSION}: compile again."
            )
        config = VtaConfig.from_json(record["config"])
        decoded = [decode(row.tobytes(), config) for row in np.asarray(instructions)]
        labels = [label for label, count in record["labels"] for _ in range(count)]
        for one, label in zip(decoded, labels, strict=True):
            one.label = label
        return cls(
            config=config,
            image=np.array(image),
            instructions=tuple(decoded),
            inputs=tuple(_place(*one) for one in record["inputs"]),
            outputs=tuple(_place(*one) for one in record["outputs"]),
        )


def _runs(labels: list[str]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for label in labels:
        if found and found[-1][0] == label:
            found[-1] = (label, found[-1][1] + 1)
        else:
            found.append((label, 1))
    return found


def _place(address: int, shape: list[int], declared: list[int]) -> Place:
    n, c, h, w = shape
    return Place(address=address, shape=(n, c, h, w), declared=tuple(declared))


@dataclass
class Builder:
    """Gathers a program: memory first come, first served, and instructions in order."""

    config: VtaConfig
    budget: int
    label: str = ""
    instructions: list[Instruction] = field(default_factory=list)
    _chunks: list[tuple[int, Array]] = field(default_factory=list)
    _size: int = 0
    _micro_ops: list[int] = field(default_factory=list)
    _cached: dict[tuple[int, ...], int] = field(default_factory=dict)
    _stored: dict[tuple[int, ...], int] = field(default_factory=dict)
    _loads: list[Instruction] = field(default_factory=list)
    _next: int = 0
    _constants: dict[bytes, int] = field(default_factory=dict)

    # Memory --------------------------------------------------------------------

    def reserve(self, size: int) -> int:
        """Address of so many bytes of zeros, on a page of their own."""
        address = BASE + self._size
        self._size += -(-size // PAGE) * PAGE
        return address

    def place(self, data: Array) -> int:
        """Address of constant data."""
        flat = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        address = self.reserve(flat.size)
        self._chunks.append((address - BASE, flat))
        return address

    def constant(self, data: Array) -> int:
        """Address of constant data, the same for the same bytes."""
        key = np.ascontiguousarray(data).tobytes()
        if key not in self._constants:
            self._constants[key] = self.place(data)
        return self._constants[key]

    # Instructions ----------------------------------------------------------------

    def emit(self, opcode: Opcode, **fields: int) -> Instruction:
        """Append an instruction; its token flags may be set later."""
        one = Instruction(opcode=opcode, fields=fields, label=self.label)
        self.instructions.append(one)
        return one

    def micro_ops(self, ops: Sequence[int]) -> tuple[int, int]:
        """(begin, end) on the chip of micro-ops, which are loaded unless they are there."""
        key = tuple(ops)
        if len(key) > self.budget:
            raise BackendError(f"{len(key)} micro-ops in one instruction; {self.budget} fit.")
        if key not in self._cached:
            if self._next + len(key) > self.budget:
                self._next = 0
                self._cached.clear()
            if key not in self._stored:
                self._stored[key] = len(self._micro_ops)
                self._micro_ops += key
            self._cached[key] = self._next
            load = self.emit(
                Opcode.LOAD,
                memory_type=Memory.UOP,
                sram_base=self._next,
                dram_base=self._stored[key],
                y_size=1,
                x_size=len(key),
                x_stride=len(key),
            )
            self._loads.append(load)
            self._next += len(key)
        begin = self._cached[key]
        return begin, begin + len(key)

    def program(
        self, tensors: Mapping[str, Place], inputs: Sequence[str], outputs: Sequence[str]
    ) -> Program:
        """What has been gathered, for tensors at these places."""
        address = self.place(np.asarray(self._micro_ops, np.uint32))
        for load in self._loads:
            load.fields["dram_base"] += address // 4
        image = np.zeros(self._size, np.uint8)
        for start, data in self._chunks:
            image[start : start + data.size] = data
        return Program(
            config=self.config,
            image=image,
            instructions=tuple(self.instructions),
            inputs=tuple(tensors[name] for name in inputs),
            outputs=tuple(tensors[name] for name in outputs),
            tensors=dict(tensors),
        )
