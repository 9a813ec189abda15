"""How tensors lie in DRAM: int8 [channel block][batch block][row][column][batch][channel]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import VtaConfig

Array = npt.NDArray[Any]


def blocks(extent: int, size: int) -> int:
    """Blocks that hold `extent` values.

    >>> blocks(17, 16)
    2
    """
    return -(-extent // size)


def pack(config: VtaConfig, tensor: Array) -> Array:
    """int8 (N, C, H, W) as it lies in DRAM, filled up with zeros."""
    batch, channels, height, width = tensor.shape
    rows, lanes = config.batch, config.block
    padded = np.zeros(
        (blocks(batch, rows) * rows, blocks(channels, lanes) * lanes, height, width), np.int8
    )
    padded[:batch, :channels] = tensor
    split = padded.reshape(-1, rows, blocks(channels, lanes), lanes, height, width)
    return np.ascontiguousarray(split.transpose(2, 0, 4, 5, 1, 3))


def unpack(config: VtaConfig, data: Array, nchw: tuple[int, int, int, int]) -> Array:
    """int8 (N, C, H, W) from bytes as `pack` lays them out."""
    batch, channels, height, width = nchw
    rows, lanes = config.batch, config.block
    split = data.view(np.int8).reshape(
        blocks(channels, lanes), blocks(batch, rows), height, width, rows, lanes
    )
    padded = split.transpose(1, 4, 0, 5, 2, 3).reshape(
        blocks(batch, rows) * rows, blocks(channels, lanes) * lanes, height, width
    )
    return np.ascontiguousarray(padded[:batch, :channels])


@dataclass(frozen=True, kw_only=True)
class View:
    """A packed tensor in elements: `planes` x `samples` planes of `height` x `width`.

    Attributes:
        address: of the first element.
        planes: channel blocks.
        samples: batch blocks.
    """

    address: int
    planes: int
    samples: int
    height: int
    width: int

    @property
    def plane_stride(self) -> int:
        """Elements from a channel block to the next."""
        return self.samples * self.height * self.width

    def at(self, plane: int, sample: int, row: int, column: int) -> int:
        """Address of an element."""
        return (
            self.address
            + ((plane * self.samples + sample) * self.height + row) * self.width
            + column
        )

    @property
    def flat(self) -> View:
        """The same elements as one row a channel block."""
        return View(
            address=self.address, planes=self.planes, samples=1, height=1, width=self.plane_stride
        )
