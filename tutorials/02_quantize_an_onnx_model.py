"""Quantize an ONNX model: the public API of tvm_quant, on the network that comes with it.

    python tutorials/02_quantize_an_onnx_model.py [--model model.onnx --data calibration.npz]

The network reads handwritten digits and is small, so every step takes seconds; a larger one takes
the same calls.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

import tvm_quant
from tvm_quant import QuantizeConfig, Runner, Statistics, demo, transform
from tvm_quant.artifact import Artifact, Provenance, calibration_table, network_of
from tvm_quant.dataset import CheckedDataset, as_dataset
from tvm_quant.ir import bindings, io_signature, op_name
from tvm_quant.report import evaluate


def chapter_1(path: Path) -> tvm.IRModule:
    """Read the float model. Its weights become constants of a Relax module."""
    title("1. Load")
    mod, _params = tvm_quant.load(path)
    for info in io_signature(mod):
        print(f"   input {info.name}: {info.dtype} {info.shape}   (None: any number)")
    return mod


def chapter_2(mod: tvm.IRModule, calibration: Any, statistics: Statistics) -> tvm.IRModule:
    """Quantize. The data need no labels; a few hundred samples like those to come are enough.

    Any iterable of batches will do, as well as arrays, .npz files and folders of images. Data that
    cannot be right (NaN, zeros, other shapes) are refused before any long work.
    """
    title("2. Quantize, with the defaults")
    int8 = tvm_quant.quantize(mod, dataset=calibration, statistics=statistics)
    for name in ("relax.nn.conv2d", "relax.matmul"):
        calls = [b.value for b in bindings(int8["main"]) if op_name(b.value) == name]
        integer = [call for call in calls if call.args[1].ty.dtype == "int8"]
        print(f"   {name:16} {len(integer)} of {len(calls)} on integers")
        assert integer
    return int8


def chapter_3(mod: tvm.IRModule, int8: tvm.IRModule, comparison: CheckedDataset) -> Runner:
    """Compare. Share of equal answers and signal-to-noise ratio say more than two accuracies.

    `evaluate` takes modules, or runners (compiled modules) that are used again; ours is.

    With a few hundred samples an accuracy is known to about half a point; on the same samples the
    float network is the better yardstick.
    """
    title("3. Compare with float")
    float32 = Runner(mod, target="llvm")
    found = evaluate(float32, int8, comparison)
    if found.top1_float is not None:
        print(f"   accuracy: float {found.top1_float:.2%}, int8 {found.top1_int8:.2%}")
    if found.agreement is not None:
        print(f"   same answer: {found.agreement:.2%} of {found.samples}")
        assert found.agreement > 0.98
    print(f"   SQNR of the output: {found.output_sqnr_db[0]:.1f} dB")
    return float32


def chapter_4(
    mod: tvm.IRModule, float32: Runner, comparison: CheckedDataset, statistics: Statistics
) -> None:
    """Choose. Profiling is the slow part, and what it finds serves every estimator.

    `Statistics` holds histograms of all activations. Chapter 2 passed an empty one: `quantize`
    filled; a filled one takes the place of the data, but weights are then rounded to nearest. Its
    file (`save`, `load`) stays small however many samples went in.
    """
    title("4. Try other settings: profile once, estimate many times")
    for config in (
        QuantizeConfig(activation_estimator="minmax"),
        QuantizeConfig(activation_estimator="kl_divergence"),
        QuantizeConfig(per_channel=False),
    ):
        int8 = tvm_quant.quantize(mod, config=config, statistics=statistics)
        sqnr = evaluate(float32, int8, comparison).output_sqnr_db[0]
        weights = "per channel" if config.per_channel else "per tensor"
        settings = f"{config.activation_estimator}, weights {weights}"
        print(f"   {settings:34} {sqnr:5.1f} dB")


def chapter_5(mod: tvm.IRModule, data: CheckedDataset, statistics: Statistics) -> Artifact:
    """Look inside. Passes run one by one as well; before `Realize` everything is still float.

    `tvm_quant.quantize` is nothing but these passes in order (`Profile` is left out here, since the
    statistics are at hand). An exception for a layer goes by the name it has in the model file, by
    a pattern, or by an operator, and has to match something.
    """
    title("5. Passes by hand, and one layer kept in float")
    config = QuantizeConfig(skip=(first_layer(mod),))
    passes = [
        transform.Prepare(),
        transform.Annotate(config),
        transform.CalibrateWeights(config),
        transform.CalibrateActivations(statistics, config),
        transform.UntieScales(config),
        transform.MatchScales(statistics, config),
        transform.FitAccumulators(),
        transform.CorrectBias(config, statistics, data),
        transform.RoundWeights(config, data),
        transform.RoundBias(),
    ]
    calibrated = tvm.transform.Sequential(passes)(mod)
    table = calibration_table(calibrated)
    for row in [row for row in table if row.port == 0][:4]:
        print(f"   {row.node:20} reads {row.grid}, from {row.low:.3f} to {row.high:.3f}")
    for node, reason in {row.node: row.reason for row in table if row.reason}.items():
        print(f"   {node:20} stays in float: {reason}")
    return Artifact(
        module=transform.Realize()(calibrated),
        config=config,
        table=table,
        provenance=Provenance.now(dataset=data.description),
        calibrated=calibrated,
        network=network_of(calibrated),
    )


def chapter_6(artifact: Artifact, batch: dict[str, Any]) -> None:
    """Keep, compile, deploy. The artifact holds the module and how it came about.

    `tvm_quant.compile` puts the CPU's integer kernels in place and gives what `tvm.compile` gives:
    a library that TVM's runtime loads, with or without tvm_quant at hand.
    """
    title("6. Save, compile, run")
    with tempfile.TemporaryDirectory() as folder:
        saved, library = Path(folder) / "model.tvmq", Path(folder) / "model.so"
        artifact.save(saved)
        module = Artifact.load(saved).module
        tvm.ir.assert_structural_equal(module, artifact.module)
        executable = tvm_quant.compile(module, target="llvm")
        executable.export_library(str(library))
        print(f"   {saved.name}: {saved.stat().st_size} bytes, with the float weights to look into")
        print(f"   {library.name}: {library.stat().st_size} bytes, with all the code it needs")
        here, elsewhere = (run(it, batch) for it in (executable, tvm.runtime.load_module(library)))
        assert np.array_equal(here, elsewhere)
        print("   the library gives the same bits as the module it was made from")


def run(executable: Any, batch: dict[str, Any]) -> np.ndarray:
    """The first output, by TVM's virtual machine; `Runner` does the same and checks."""
    machine = relax.VirtualMachine(executable, tvm.cpu())
    outputs = machine["main"](*[tvm.runtime.tensor(array) for array in batch.values()])
    return (outputs if isinstance(outputs, tvm.runtime.Tensor) else outputs[0]).numpy()


def first_layer(mod: tvm.IRModule) -> str:
    """The name, in the model file, of the first convolution or matrix product."""
    annotated = tvm.transform.Sequential([transform.Prepare(), transform.Annotate()])(mod)
    kinds = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d", "relax.matmul")
    return next(row.node for row in calibration_table(annotated) if row.op in kinds)


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=demo.model_path())
    parser.add_argument("--data", type=Path, help="calibration samples of your model")
    args = parser.parse_args()

    mod = chapter_1(args.model)
    signature = io_signature(mod)
    if args.data:
        calibration = comparison = as_dataset(str(args.data), signature)
    else:
        calibration = as_dataset(demo.calibration_data(), signature)
        comparison = as_dataset([demo.evaluation_data()], signature)
    statistics = Statistics()
    int8 = chapter_2(mod, calibration, statistics)
    float32 = chapter_3(mod, int8, comparison)
    chapter_4(mod, float32, comparison, statistics)
    artifact = chapter_5(mod, calibration, statistics)
    chapter_6(artifact, next(iter(comparison)))


if __name__ == "__main__":
    main()
