"""ResNet-18 on a VTA: from an ONNX file to instructions, and what they spend their cycles on.

    python tutorials/03_resnet18_on_vta.py [--size 224] [--timeline timeline.png]

VTA (Moreau et al., arXiv:1807.04188) is a matrix unit for 16 x 16 int8 products, an ALU that adds,
shifts and compares, and three queues of instructions that wait for each other by tokens. It has no
multiplier beside the matrix unit, so that all scales have to be powers of two. Nothing here needs
the hardware: programs run in a simulator. The weights are random, which is enough to see where time
goes; images are small so that every step takes seconds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax

import tvm_quant
from tvm_quant import QuantizeConfig, Runner
from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.codegen import (
    Program,
    Run,
    compile_region,
    disassembly,
    layer_traces,
    simulate,
)
from tvm_quant.backend.vta.partition import Part, partition
from tvm_quant.bench.zoo.resnet import resnet18
from tvm_quant.ir import bindings, op_name
from tvm_quant.report import plot_timeline, spans_of


def chapter_1(size: int) -> tuple[tvm.IRModule, list[dict[str, np.ndarray]]]:
    """Read a file, as any ONNX file is read, and take a few images to calibrate on."""
    title("1. An ONNX file")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet18.onnx"
        onnx.save(resnet18(size), path)
        print(f"   {path.name}: {path.stat().st_size / 1e6:.0f} MB, images of {size} x {size}")
        mod, _params = tvm_quant.load(path)
    rng = np.random.default_rng(0)
    images = [{"data": rng.standard_normal((1, 3, size, size), np.float32)} for _ in range(8)]
    return mod, images


def chapter_2(mod: tvm.IRModule, images: list[dict[str, np.ndarray]]) -> tvm.IRModule:
    """Quantize for VTA. The hardware row makes all scales powers of two, also along channels.

    A convolution becomes four operators: int8 products summed in int32, a bias, a shift to the
    right with rounding, and a clip, of which ReLU is the lower bound. A residual is shifted to the
    left until it has the scale of the sums, and added.
    """
    title("2. Quantize, with hardware='vta'")
    config = QuantizeConfig(hardware="vta", weight_rounding="nearest")
    int8 = tvm_quant.quantize(mod, dataset=images, config=config)
    first = [b for b in bindings(int8["main"]) if op_name(b.value)][4:7]
    for binding in first:
        print(f"   {binding.var.name:18} = {op_name(binding.value)}, {binding.value.ty.dtype}")
    return int8


def chapter_3(int8: tvm.IRModule) -> Part:
    """Which operators VTA takes: chains of them become regions, each one program."""
    title("3. Partition")
    pieces = list(partition(int8["main"]))
    (part,) = [piece for piece in pieces if isinstance(piece, Part)]
    rest = [op_name(p.value) for p in pieces if not isinstance(p, Part)]
    print(f"   on VTA: {len(part.region.layers)} layers, {part.macs / 1e6:.0f} M multiply-adds")
    print(f"   on the CPU: {', '.join(name for name in rest if name)}")
    return part


def chapter_4(part: Part) -> tuple[Program, Run]:
    """Compile the region and run it. The simulator starts each instruction as its tokens allow."""
    title("4. Instructions")
    program = compile_region(part.region, VtaConfig())
    print(
        f"   {len(program.instructions)} instructions, {program.image.nbytes / 1e6:.0f} MB of DRAM"
    )
    for line, _ in zip(disassembly(program), range(8), strict=False):
        print(f"   {line[:90]}")
    shape = part.region.by_name[part.region.inputs[0]].shape
    run = simulate(program, [np.zeros(shape, np.int8)])
    print(f"   {run.cycles / 1e6:.2f} M cycles of the model, an ideal bound")
    return program, run


def chapter_5(run: Run, timeline: Path) -> None:
    """Where the cycles go. An element of weights takes 32 cycles to load and is used once a pixel.

    So layers of few pixels wait for the bus, and layers of few channels wait for the ALU.
    """
    title("5. Where the cycles go")
    for row in layer_traces(run.events)[:-1]:
        print(f"   {row.layer:24} {row.cycles:8} cycles, matrix unit {row.utilization:4.0%}")
    plot_timeline(timeline, spans_of(run), title="ResNet-18 on VTA")
    print(f"   drew {timeline}")


def chapter_6(int8: tvm.IRModule, image: dict[str, np.ndarray]) -> None:
    """All of it at once: `compile` for the target "vta" gives a library like any other.

    Its programs are constants. A process that imports tvm_quant, or registers the one function
    `tvm_quant.vta.run`, runs it.
    """
    title("6. Compile, export, compare")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "resnet18_vta.so"
        tvm_quant.compile(int8, "vta").export_library(str(library))
        print(f"   {library.name}: {library.stat().st_size / 1e6:.0f} MB")
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
        found = machine["main"](tvm.runtime.tensor(image["data"])).numpy()
    (expected,) = Runner(int8, "llvm").run(image)
    np.testing.assert_array_equal(found, expected)
    print("   every output is that of the CPU, bit for bit")


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, help="of the images")
    parser.add_argument("--timeline", type=Path, help="picture to write (.png, .svg)")
    args = parser.parse_args()

    mod, images = chapter_1(args.size)
    int8 = chapter_2(mod, images)
    part = chapter_3(int8)
    _program, run = chapter_4(part)
    with tempfile.TemporaryDirectory() as folder:
        chapter_5(run, args.timeline or Path(folder) / "timeline.png")
    chapter_6(int8, images[0])


if __name__ == "__main__":
    main()
