"""`tvm-quant import`: from a model that another tool quantized to a `.tvmq` file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tvm
import typer

from tvm_quant import frontend
from tvm_quant.artifact import SUFFIX, Provenance
from tvm_quant.cli import options
from tvm_quant.cli.artifacts import check_output, write_artifact
from tvm_quant.cli.guard import stderr
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import FRONTENDS
from tvm_quant.op import brings_scales
from tvm_quant.quantize import quantize
from tvm_quant.report import PassTrace

ROUNDINGS = [name for row in FRONTENDS.values() for name in row.roundings]
"""Of all formats."""


def import_model(
    model: options.Quantized,
    output: Annotated[
        Path, typer.Option("--output", "-o", help=f"File to write ({SUFFIX}).", show_default=False)
    ],
    rounding: Annotated[
        str | None,
        options.choice(
            ROUNDINGS,
            "Whose integers. ONNX: exact, onnxruntime; TFLite: xnnpack, builtin, reference.",
        ),
    ] = None,
    shape: options.Shape = None,
    params: options.Params = None,
    dump_ir: options.DumpIr = None,
    explain: options.Explain = False,
    slim: options.Slim = False,
) -> None:
    """Take over a network that another tool quantized, with its scales and its integers.

    It needs no data. Weights become the integers that they are, and operators without an integer
    form stay in float, by themselves.

    [bold]Examples:[/]

      tvm-quant import mobilenet_int8.tflite -o mobilenet.tvmq

      tvm-quant import resnet_qdq.onnx -o resnet.tvmq --explain
    """
    check_output(output)
    with stderr().status(f"reading {model}"):
        mod, parameters = frontend.load(
            model, shapes=options.parse_shapes(shape or []), rounding=rounding, params=params
        )
    if not brings_scales(mod):
        raise FrontendError(
            f"{model} has no quantizers: it is a float network. Calibrate it on samples with "
            f"tvm-quant quantize {model} --data samples.npz -o {output}"
        )
    trace, config = PassTrace(dump_ir), QuantizeConfig()
    with tvm.transform.PassContext(instruments=[trace]):
        module = quantize(mod, parameters, config=config)
    made = Provenance.now(source=model, command=sys.argv, dataset=None, preprocess=None)
    write_artifact(output, module, trace, config, made, explain=explain, slim=slim)
