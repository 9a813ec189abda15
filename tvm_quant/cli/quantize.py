"""`tvm-quant quantize`: from a float model and data to a `.tvmq` file."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tvm
import typer
from rich.table import Table
from tvm import IRModule

from tvm_quant import frontend
from tvm_quant.artifact import SUFFIX, Provenance
from tvm_quant.cli import options
from tvm_quant.cli.artifacts import check_output, write_artifact
from tvm_quant.cli.guard import stderr, stdout
from tvm_quant.cli.workers import Workers, executor
from tvm_quant.config import PRESETS, BadData, BiasCorrection, QuantizeConfig, ZeroData
from tvm_quant.dataset import CheckedDataset, Preprocess
from tvm_quant.errors import ConfigError
from tvm_quant.estimator import ActivationEstimator, WeightEstimator, estimator_names
from tvm_quant.hardware import HARDWARE, SUFFIXES
from tvm_quant.ir import io_signature
from tvm_quant.op import brings_scales
from tvm_quant.quantize import quantize
from tvm_quant.report import METRICS, PassTrace
from tvm_quant.search import AccuracyTarget, Controlled, control_accuracy
from tvm_quant.statistics import Statistics

NO_DATA = "global_scale"
"""The estimator that needs no data."""


def quantize_model(
    model: options.Model,
    output: Annotated[
        Path, typer.Option("--output", "-o", help=f"File to write ({SUFFIX}).", show_default=False)
    ],
    data: Annotated[
        str | None,
        typer.Option(
            "--data", "-d", help="Calibration samples: an .npz or .npy file, or a folder of images."
        ),
    ] = None,
    preprocess: options.PreprocessFile = None,
    config: options.ConfigFile = None,
    stats: Annotated[
        Path | None,
        typer.Option(
            help="Statistics of an earlier run, used instead of profiling. Without --data, weights "
            "are rounded to nearest."
        ),
    ] = None,
    save_stats: Annotated[
        Path | None, typer.Option(help="Keep the statistics in this file.")
    ] = None,
    limit: options.Limit = None,
    hardware: Annotated[
        str | None,
        options.choice(
            HARDWARE,
            "What the network will run on, or a YAML file that says what that accepts.",
            files=SUFFIXES,
        ),
    ] = None,
    preset: Annotated[
        str | None, options.choice(PRESETS, "Grids of activations: around zero, or not.")
    ] = None,
    calibrate: Annotated[
        str | None,
        options.choice(
            estimator_names(ActivationEstimator), "How ranges of activations are chosen."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        options.choice(estimator_names(WeightEstimator), "How scales of weights are chosen."),
    ] = None,
    bias_correction: Annotated[
        BiasCorrection | None, typer.Option(help="How the shift of each layer's mean is removed.")
    ] = None,
    skip: options.Skip = None,
    settings: options.Settings = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            help="What the metric may lose against float (points of 100): layers go back to float "
            "until it loses no more."
        ),
    ] = None,
    min_score: Annotated[
        float | None, typer.Option(help="What the metric has to reach, instead of --max-drop.")
    ] = None,
    metric: Annotated[
        str, options.choice(METRICS, "What --max-drop and --min-score are about.")
    ] = "top1",
    validation: Annotated[
        str | None,
        typer.Option(help="Samples with labels that the metric is measured on; without, --data."),
    ] = None,
    shape: options.Shape = None,
    params: options.Params = None,
    on_bad: Annotated[
        BadData | None, typer.Option(help="What to do with samples with NaN or Inf.")
    ] = None,
    on_zero: Annotated[
        ZeroData | None,
        typer.Option(help="What to do with a float input that is all zero."),
    ] = None,
    workers: Workers = 1,
    dump_ir: options.DumpIr = None,
    explain: options.Explain = False,
    slim: options.Slim = False,
) -> None:
    """Quantize a float network to integers.

    A network that another tool quantized keeps its scales and needs no data; for these,
    [bold]tvm-quant import[/] has fewer options. The result holds the integer module, the
    configuration, all scales and where it came from.

    [bold]Examples:[/]

      tvm-quant quantize resnet.onnx --data calib.npz -o resnet.tvmq

      tvm-quant quantize net.onnx --data photos/ --preprocess imagenet.yaml --limit 256 -o net.tvmq

      tvm-quant quantize net.onnx --data calib.npz --calibrate mse --skip "head.*" -o net.tvmq

      tvm-quant quantize net.onnx --data calib.npz --validation val.npz --max-drop 0.1 -o net.tvmq
    """
    check_output(output, save_stats)
    flags = _Flags(
        hardware=hardware,
        activation_estimator=calibrate,
        weight_estimator=weights,
        bias_correction=bias_correction,
        max_samples=limit,
        on_bad=on_bad,
        on_zero=on_zero,
    )
    fields = {**PRESETS.get(preset or "", {}), **vars(flags)}
    chosen = options.read_config(config, fields, skip or [], settings or [])
    target = _target(max_drop, min_score, metric, data, validation)
    spec = options.read_preprocess(preprocess)
    known = Statistics.load(stats) if stats is not None else None
    with stderr().status(f"reading {model}"):
        mod, parameters = frontend.load(
            model, shapes=options.parse_shapes(shape or []), params=params
        )
    if not brings_scales(mod):
        _check_calibration(chosen, data, known)
    dataset = _open(data, mod, spec, chosen)
    gathered = known if known is not None else Statistics()
    trace = PassTrace(dump_ir)
    with executor(workers) as pool:
        if target is not None:
            judged = _validation(validation, mod, spec, dataset)
            found = control_accuracy(
                mod,
                parameters,
                dataset,
                chosen,
                target=replace(target, data=judged),
                executor=pool,
                progress=True,
                statistics=gathered,
            )
            _show_control(found)
            # Other layers in float, other tensors to profile.
            gathered = gathered if found.config == chosen else Statistics()
            chosen = found.config
        with tvm.transform.PassContext(instruments=[trace]):
            module = quantize(
                mod, parameters, dataset, chosen, executor=pool, progress=True, statistics=gathered
            )
    if save_stats is not None:
        gathered.save(save_stats)
    made = Provenance.now(
        source=model,
        command=sys.argv,
        dataset=dataset.description if dataset is not None else None,
        preprocess=spec.to_dict() if spec is not None else None,
    )
    write_artifact(output, module, trace, chosen, made, explain=explain, slim=slim)


@dataclass(frozen=True, kw_only=True)
class _Flags:
    """Options that set a field of the config; None leaves it."""

    hardware: Any
    activation_estimator: Any
    weight_estimator: Any
    bias_correction: Any
    max_samples: int | None
    on_bad: Any
    on_zero: Any


def _target(
    max_drop: float | None,
    min_score: float | None,
    metric: str,
    data: str | None,
    validation: str | None,
) -> AccuracyTarget | None:
    """What the options ask for; None if they ask for nothing."""
    if max_drop is None and min_score is None:
        if validation is not None:
            raise ConfigError("--validation is for --max-drop or --min-score; give one of them")
        return None
    if data is None:
        raise ConfigError(
            "--max-drop and --min-score order layers by calibration data: give --data"
        )
    return AccuracyTarget(metric=metric, max_drop=max_drop, min_score=min_score)


def _validation(
    path: str | None, mod: IRModule, spec: Preprocess | None, dataset: CheckedDataset | None
) -> CheckedDataset | None:
    if path is None:
        return dataset
    with stderr().status(f"checking {path}"):
        return options.open_data(path, io_signature(mod), preprocess=spec, limit=None)


def _show_control(found: Controlled) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("given back", overflow="fold")
    for name in ("score", "drop", "ms"):
        table.add_column(name, justify="right")
    table.add_column("")
    start = found.float_score, 0.0, found.float_latency_ms
    table.add_row("everything (float)", *_figures(*start), "")
    for step in found.steps:
        what = ", ".join(step.group.nodes) if step.group else "nothing (int8)"
        undone = "" if step.kept else "undone"
        table.add_row(what, *_figures(step.score, step.drop, step.latency_ms), undone)
    stdout().print(table)


def _figures(score: float, drop: float, latency_ms: float) -> tuple[str, str, str]:
    return f"{score:.2f}", f"{drop:.2f}", f"{latency_ms:.3f}"


def _check_calibration(
    config: QuantizeConfig, data: str | None, statistics: Statistics | None
) -> None:
    if data is None and statistics is None and config.activation_estimator != NO_DATA:
        raise ConfigError(
            f"calibrating with '{config.activation_estimator}' needs data: give --data (or --stats "
            f"of an earlier run), or --calibrate {NO_DATA} to assume one range for all tensors"
        )


def _open(
    data: str | None, mod: IRModule, spec: Preprocess | None, config: QuantizeConfig
) -> CheckedDataset | None:
    if data is None:
        return None
    with stderr().status(f"checking {data}"):
        return options.open_data(
            data,
            io_signature(mod),
            preprocess=spec,
            limit=config.max_samples,
            on_bad=config.on_bad,
            on_zero=config.on_zero,
        )
