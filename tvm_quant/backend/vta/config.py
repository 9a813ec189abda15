"""`VtaConfig`: the sizes of one VTA, read from the JSON that VTA's tools use."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from tvm_quant.errors import ConfigError

INT8_LOG_WIDTH, INT32_LOG_WIDTH = 3, 5
WORD_BITS, MICRO_OP_BITS = 64, 32
LOOP_BITS = 14  # of an iteration count
MEMORY_BITS = 16  # of an SRAM address, a size, a stride
PORTABLE_MICRO_OPS = 2048  # depth of the Chisel design, the smallest


class Memory(IntEnum):
    """On-chip memories, numbered as in `memory_type`."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4  # low bytes of ACC, under the same indices
    ACC_8BIT = 5  # int8 in DRAM, ACC on chip


@dataclass(frozen=True, kw_only=True)
class VtaConfig:
    """One VTA. Fields are binary logarithms, named as in `vta_config.json` in small letters.

    Attributes:
        log_inp_width, log_wgt_width, log_acc_width: bits of inputs, weights and sums; the code
            generator needs int8, int8 and int32.
        log_batch: rows of an INP, ACC or OUT element.
        log_block: lanes of a row.
        log_uop_buff_size, log_inp_buff_size, log_wgt_buff_size, log_acc_buff_size: bytes.

    Source: apache/tvm-vta, config/vta_config.json and config/pkg_config.py.

    >>> VtaConfig().depth(Memory.INP), VtaConfig(log_block=5).element_bytes(Memory.WGT)
    (2048, 1024)
    """

    log_inp_width: int = INT8_LOG_WIDTH
    log_wgt_width: int = INT8_LOG_WIDTH
    log_acc_width: int = INT32_LOG_WIDTH
    log_batch: int = 0
    log_block: int = 4
    log_uop_buff_size: int = 15
    log_inp_buff_size: int = 15
    log_wgt_buff_size: int = 18
    log_acc_buff_size: int = 17

    def __post_init__(self) -> None:
        self._check_values()
        self._check_widths()

    @property
    def batch(self) -> int:
        """Rows of an INP, ACC or OUT element."""
        return 1 << self.log_batch

    @property
    def block(self) -> int:
        """Lanes of a row: input channels of an INP element, output channels of an ACC element."""
        return 1 << self.log_block

    def element_bytes(self, memory: Memory) -> int:
        """Bytes in DRAM of an element of a memory."""
        return 1 << self._log_element(memory)

    def index_bits(self, memory: Memory) -> int:
        """Bits of an index into a memory."""
        return self._log_buffer(memory) - self._log_element(_LIES_IN.get(memory, memory))

    def depth(self, memory: Memory) -> int:
        """Elements of a memory."""
        return 1 << self.index_bits(memory)

    @property
    def reachable_inputs(self) -> int:
        """INP elements that a micro-op can name: its source field is as wide as an ACC index."""
        return min(self.depth(Memory.INP), self.depth(Memory.ACC))

    def micro_op_budget(self, *, extended: bool = False) -> int:
        """Micro-ops that a program may hold on the chip at once."""
        depth = self.depth(Memory.UOP)
        return depth if extended else min(depth, PORTABLE_MICRO_OPS)

    def to_json(self) -> dict[str, int]:
        """The fields under the names of `vta_config.json`."""
        return {name.upper(): value for name, value in dataclasses.asdict(self).items()}

    @property
    def digest(self) -> str:
        """Hash of the fields: equal for programs that run on the same VTA."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> VtaConfig:
        """Read the keys of `vta_config.json`; those of a board (TARGET, HW_VER, ...) don't matter.

        Raises:
            ConfigError: a LOG_ key that is unknown, missing or not a number, or sizes that the
                instruction set cannot address.
        """
        names = {field.name.upper(): field.name for field in dataclasses.fields(cls)}
        sizes = {key: value for key, value in values.items() if key.startswith("LOG_")}
        unknown, missing = sorted(set(sizes) - set(names)), sorted(set(names) - set(sizes))
        if unknown or missing:
            raise ConfigError(
                f"VTA configuration: unknown keys {unknown}, missing keys {missing}; expected "
                f"{', '.join(names)}."
            )
        return cls(**{names[key]: value for key, value in sizes.items()})

    @classmethod
    def read(cls, path: str | Path) -> VtaConfig:
        """Read a `vta_config.json`.

        Raises:
            ConfigError: the file is missing, is not JSON, or see `from_json`.
        """
        try:
            values = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"VTA configuration {path}: cannot be read: {error}.") from error
        if not isinstance(values, dict):
            raise ConfigError(f"VTA configuration {path}: expected a JSON object of LOG_ keys.")
        return cls.from_json(values)

    def _log_element(self, memory: Memory) -> int:
        rows = self.log_batch + self.log_block
        return {
            Memory.UOP: 2,
            Memory.WGT: 2 * self.log_block + self.log_wgt_width - 3,
            Memory.INP: rows + self.log_inp_width - 3,
            Memory.ACC: rows + self.log_acc_width - 3,
            Memory.OUT: rows + self.log_inp_width - 3,
            Memory.ACC_8BIT: rows + self.log_inp_width - 3,
        }[memory]

    def _log_buffer(self, memory: Memory) -> int:
        return {
            Memory.UOP: self.log_uop_buff_size,
            Memory.WGT: self.log_wgt_buff_size,
            Memory.INP: self.log_inp_buff_size,
            Memory.ACC: self.log_acc_buff_size,
            Memory.OUT: self.log_acc_buff_size,
            Memory.ACC_8BIT: self.log_acc_buff_size,
        }[memory]

    def _check_values(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 30:
                raise ConfigError(
                    f"VTA configuration: {name.upper()} is {value!r}, expected an integer from 0 "
                    "to 30, the binary logarithm of a size."
                )
        widths = (self.log_inp_width, self.log_wgt_width, self.log_acc_width)
        expected = (INT8_LOG_WIDTH, INT8_LOG_WIDTH, INT32_LOG_WIDTH)
        if widths != expected:
            raise ConfigError(
                f"VTA configuration: LOG_INP_WIDTH, LOG_WGT_WIDTH, LOG_ACC_WIDTH are {widths}, "
                f"expected {expected}: int8 inputs and weights, int32 sums."
            )

    def _check_widths(self) -> None:
        for memory in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC):
            if not 2 <= self.index_bits(memory) <= MEMORY_BITS:
                raise ConfigError(
                    f"VTA configuration: {memory.name} has {self._elements(memory)} elements of "
                    f"{self.element_bytes(memory)} bytes, expected 4 to 65536: change "
                    f"LOG_{memory.name}_BUFF_SIZE or LOG_BLOCK."
                )
        uop, wgt = self.index_bits(Memory.UOP), self.index_bits(Memory.WGT)
        inp, acc = self.index_bits(Memory.INP), self.index_bits(Memory.ACC)
        self._check_fits("a micro-op", 2 * acc + wgt, MICRO_OP_BITS)
        self._check_fits("the loops of an instruction", 9 + 2 * uop + 2 * LOOP_BITS, WORD_BITS)
        self._check_fits("the factors of a GEMM", 2 * (acc + inp + wgt), WORD_BITS)
        self._check_fits("the factors of an ALU instruction", 4 * acc + 20, WORD_BITS)

    def _check_fits(self, what: str, bits: int, available: int) -> None:
        if bits > available:
            raise ConfigError(
                f"VTA configuration: {what} needs {bits} bits and has {available}: make the UOP, "
                "INP, WGT or ACC buffer smaller, or LOG_BLOCK larger."
            )

    def _elements(self, memory: Memory) -> str:
        bits = self.index_bits(memory)
        return str(1 << bits) if bits >= 0 else "less than one"


_LIES_IN = {Memory.OUT: Memory.ACC, Memory.ACC_8BIT: Memory.ACC}  # whose index it has
