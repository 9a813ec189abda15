"""`compile_region`: the layers of a region as one program."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_quant.backend.vta.config import Memory, VtaConfig
from tvm_quant.backend.vta.layer import Region, Tensor
from tvm_quant.backend.vta.layout import View, blocks
from tvm_quant.backend.vta.lower import lower
from tvm_quant.backend.vta.program import Builder, Program
from tvm_quant.backend.vta.tile import Tile
from tvm_quant.backend.vta.verify import verify


def compile_region(
    region: Region,
    config: VtaConfig,
    *,
    extended: bool = False,
    tiles: Mapping[str, Tile] | None = None,
) -> Program:
    """Compile a region; the program is verified.

    Between layers the program waits until all results are in DRAM.

    Args:
        region: layers and tensors.
        config: sizes of the VTA.
        extended: use what only the functional simulator has: long shifts, all micro-ops.
        tiles: by layer, instead of the cheapest.

    Raises:
        UnsupportedError: a layer that does not fit the VTA, or whose sums can exceed int32.
        ProgramError: a mistake of the code generator.
    """
    builder = Builder(config, extended=extended)
    views = {tensor.name: _allocate(builder, tensor) for tensor in region.tensors}
    for index, layer in enumerate(region.layers):
        tile = (tiles or {}).get(layer.name)
        lower(builder, layer, views, after=index > 0, tile=tile)
    program = builder.finish(region.inputs, region.outputs)
    verify(program)
    return program


def _allocate(builder: Builder, tensor: Tensor) -> View:
    batch, channels, height, width = tensor.nchw
    config = builder.config
    planes, samples = blocks(channels, config.block), blocks(batch, config.batch)
    size = planes * samples * height * width * config.element_bytes(Memory.INP)
    place = builder.allocate(tensor.name, size, tensor.shape)
    return View(
        address=builder.address(place, Memory.INP),
        planes=planes,
        samples=samples,
        height=height,
        width=width,
    )
