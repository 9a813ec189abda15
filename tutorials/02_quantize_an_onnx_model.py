"""Quantize an ONNX model: the public API of tvm_quant, on the network that comes with it.

    python tutorials/02_quantize_an_onnx_model.py [--model model.onnx --data calibration.npz]

The network reads handwritten digits and is small, so every step takes seconds; a larger one takes
the same calls. With your own model, chapters that need labels are left out.
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
from tvm_quant import QuantizeConfig, Statistics, demo, transform
from tvm_quant.artifact import Artifact, Provenance, calibration_table
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


def chapter_2(mod: tvm.IRModule, calibration: Any) -> tvm.IRModule:
    """Quantize. The data need no labels; a few hundred samples like those to come are enough.

    Any iterable of batches will do, as well as arrays, .npz files and folders of images. Data that
    cannot be right (NaN, zeros, other shapes) are refused before any long work.
    """
    title("2. Quantize, with the defaults")
    int8 = tvm_quant.quantize(mod, dataset=calibration)
    for name in ("relax.nn.conv2d", "relax.matmul"):
        calls = [b.value for b in bindings(int8["main"]) if op_name(b.value) == name]
        integer = [call for call in calls if call.args[1].ty.dtype == "int8"]
        print(f"   {name:16} {len(integer)} of {len(calls)} on integers")
        assert integer
    return int8


def chapter_3(mod: tvm.IRModule, int8: tvm.IRModule, comparison: CheckedDataset) -> None:
    """Compare. Share of equal answers and signal-to-noise ratio say more than two accuracies.

    With a few hundred samples an accuracy is known to about half a point; on the same samples the
    float network is the better yardstick.
    """
    title("3. Compare with float")
    found = evaluate(mod, int8, comparison)
    if found.top1_float is not None:
        print(f"   accuracy: float {found.top1_float:.2%}, int8 {found.top1_int8:.2%}")
    if found.agreement is not None:
        print(f"   same answer: {found.agreement:.2%} of {found.samples}")
        assert found.agreement > 0.98
    print(f"   SQNR of the output: {found.output_sqnr_db[0]:.1f} dB")


def chapter_4(mod: tvm.IRModule, calibration: Any, comparison: CheckedDataset) -> None:
    """Choose. Profiling is the slow part, and what it finds serves every estimator.

    `Statistics` holds histograms of all activations; its file (`save`, `load`) is small, however
    many samples went in. Given to `quantize`, it takes the place of running the network again.
    """
    title("4. Try estimators: profile once, estimate many times")
    statistics = Statistics()
    for name in ("robust", "minmax", "percentile", "kl_divergence", "mse"):
        config = QuantizeConfig(activation_estimator=name)
        int8 = tvm_quant.quantize(mod, None, calibration, config, statistics=statistics)
        sqnr = evaluate(mod, int8, comparison).output_sqnr_db[0]
        print(f"   {name:16} {sqnr:5.1f} dB")
    per_tensor = QuantizeConfig(per_channel=False)
    int8 = tvm_quant.quantize(mod, None, calibration, per_tensor, statistics=statistics)
    sqnr = evaluate(mod, int8, comparison).output_sqnr_db[0]
    print(f"   {'one weight scale per tensor':16} {sqnr:5.1f} dB")


def chapter_5(mod: tvm.IRModule, calibration: Any) -> Artifact:
    """Look inside. Passes run one by one as well; before `Realize` everything is still float.

    `tvm_quant.quantize` is nothing but these passes in order. An exception for a layer goes by the
    name it has in the model file, by a pattern, or by an operator, and has to match something.
    """
    title("5. Passes by hand, and one layer kept in float")
    config = QuantizeConfig(skip=(first_layer(mod),))
    statistics = Statistics()
    data = as_dataset(calibration, io_signature(mod))
    passes = [
        transform.Prepare(),
        transform.Annotate(config),
        transform.CalibrateWeights(config),
        transform.Profile(data, statistics),
        transform.CalibrateActivations(statistics, config),
        transform.MatchScales(statistics, config),
        transform.FitAccumulators(),
        transform.CorrectBias(config, statistics, data),
    ]
    calibrated = tvm.transform.Sequential(passes)(mod)
    table = calibration_table(calibrated)
    for row in [row for row in table if row.port == 0][:4]:
        print(f"   {row.node:24} reads {row.grid}, from {row.low:.3f} to {row.high:.3f}")
    for row in [row for row in table if row.reason]:
        print(f"   {row.node:24} stays in float: {row.reason}")
    return Artifact(
        module=transform.Realize()(calibrated),
        config=config,
        table=table,
        provenance=Provenance.now(dataset=data.description),
        calibrated=calibrated,
    )


def chapter_6(artifact: Artifact, comparison: CheckedDataset) -> None:
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
        tvm_quant.compile(module, target="llvm").export_library(str(library))
        print(
            f"   {saved.name} {saved.stat().st_size} bytes, {library.name} {library.stat().st_size}"
        )

        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
        inputs = next(iter(comparison))
        outputs = machine["main"](*[tvm.runtime.tensor(array) for array in inputs.values()])
        here = tvm_quant.Runner(module).run(inputs)
        first = outputs if isinstance(outputs, tvm.runtime.Tensor) else outputs[0]
        assert np.array_equal(first.numpy(), here[0])
        print("   the library alone gives the same bits as the runner")


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

    own = args.data is not None
    calibration = str(args.data) if own else demo.calibration_data()
    mod = chapter_1(args.model)
    comparison = as_dataset(
        calibration if own else [demo.evaluation_data()], io_signature(mod), limit=600
    )
    int8 = chapter_2(mod, calibration)
    chapter_3(mod, int8, comparison)
    chapter_4(mod, calibration, comparison)
    artifact = chapter_5(mod, calibration)
    chapter_6(artifact, comparison)


if __name__ == "__main__":
    main()
