"""`tvm-quant quantize`: from a float model and data to a `.tvmq` file."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import tvm
import typer
from tvm import IRModule

from tvm_quant import frontend
from tvm_quant.artifact import (
    SUFFIX,
    Artifact,
    Provenance,
    QuantizerRow,
    calibration_table,
    network_of,
)
from tvm_quant.cli import options
from tvm_quant.cli.guard import stderr, stdout
from tvm_quant.config import BadData, BiasCorrection, QuantizeConfig, ZeroData
from tvm_quant.dataset import CheckedDataset, Preprocess
from tvm_quant.errors import ArtifactError, ConfigError
from tvm_quant.estimator import ActivationEstimator, WeightEstimator, estimator_names
from tvm_quant.frontend import FRONTENDS
from tvm_quant.hardware import HARDWARE, SUFFIXES
from tvm_quant.ir import io_signature
from tvm_quant.quantize import quantize
from tvm_quant.report import PassTrace, float_table
from tvm_quant.statistics import Statistics

NO_DATA = "global_scale"
"""The estimator that needs no data."""


def quantize_model(
    model: Annotated[
        Path,
        typer.Argument(
            help="Float model: " + "; ".join(row.reads for row in FRONTENDS.values()) + ".",
            show_default=False,
        ),
    ],
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
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="YAML file of QuantizeConfig; other options override it."
        ),
    ] = None,
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
    skip: Annotated[
        list[str] | None,
        typer.Option(help="Keep nodes that match this pattern in float; repeatable."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any field of QuantizeConfig, as FIELD=VALUE; repeatable."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Shape of an input, as NAME=1,3,224,224; repeatable."),
    ] = None,
    on_bad: Annotated[
        BadData | None, typer.Option(help="What to do with samples with NaN or Inf.")
    ] = None,
    on_zero: Annotated[
        ZeroData | None,
        typer.Option(help="What to do with a float input that is all zero."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that run the network; 1 uses threads.")
    ] = 1,
    dump_ir: Annotated[
        Path | None, typer.Option(help="Folder that gets the module after each pass.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why operators stayed in float.")
    ] = False,
    slim: Annotated[
        bool,
        typer.Option(
            "--slim", help="Leave out the float weights, which evaluate needs to compare layers."
        ),
    ] = False,
) -> None:
    """Quantize a float network to integers.

    The result holds the integer module, the configuration, all scales and where it came from.

    [bold]Examples:[/]

      tvm-quant quantize resnet.onnx --data calib.npz -o resnet.tvmq

      tvm-quant quantize net.onnx --data photos/ --preprocess imagenet.yaml --limit 256 -o net.tvmq

      tvm-quant quantize net.onnx --data calib.npz --calibrate mse --skip "head.*" -o net.tvmq
    """
    _check_output(output, save_stats)
    flags = _Flags(
        hardware=hardware,
        activation_estimator=calibrate,
        weight_estimator=weights,
        bias_correction=bias_correction,
        max_samples=limit,
        on_bad=on_bad,
        on_zero=on_zero,
    )
    chosen = _config(config, flags, skip or [], settings or [])
    spec = options.read_preprocess(preprocess)
    known = Statistics.load(stats) if stats is not None else None
    _check_calibration(chosen, data, known)
    with stderr().status(f"reading {model}"):
        mod, params = frontend.load(model, shapes=options.parse_shapes(shape or []))
    dataset = _open(data, mod, spec, chosen)
    gathered = known if known is not None else Statistics()
    trace = PassTrace(dump_ir)
    with tvm.transform.PassContext(instruments=[trace]), _executor(workers) as executor:
        module = quantize(
            mod, params, dataset, chosen, executor=executor, progress=True, statistics=gathered
        )
    if save_stats is not None:
        gathered.save(save_stats)
    calibrated = trace.calibrated if trace.calibrated is not None else module
    table = calibration_table(calibrated)
    made = Provenance.now(
        source=model,
        command=sys.argv,
        dataset=dataset.description if dataset is not None else None,
        preprocess=spec.to_dict() if spec is not None else None,
    )
    Artifact(
        module=module,
        config=chosen,
        table=table,
        provenance=made,
        calibrated=None if slim else calibrated,
        network=network_of(calibrated),
    ).save(output)
    _summarize(output, table, explain)


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


def _config(
    path: Path | None, flags: _Flags, skip: Sequence[str], settings: Sequence[str]
) -> QuantizeConfig:
    base = QuantizeConfig.load(path) if path is not None else QuantizeConfig()
    given = {
        name: getattr(value, "value", value)
        for name, value in vars(flags).items()
        if value is not None
    }
    values = base.to_dict() | given | options.parse_settings(list(settings))
    chosen = QuantizeConfig.from_dict(values)
    return replace(chosen, skip=(*chosen.skip, *skip))


def _check_output(output: Path, save_stats: Path | None) -> None:
    """Find out before an hour of work that its result cannot be written."""
    for path in (output, save_stats):
        if path is not None and not path.parent.is_dir():
            raise ArtifactError(f"cannot write {path}: there is no folder {path.parent}")
        if path is not None and path.is_dir():
            raise ArtifactError(f"cannot write {path}: it is a folder")


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


@contextmanager
def _executor(workers: int) -> Iterator[Executor | None]:
    """Processes of their own, started afresh: TVM's thread pool does not survive a fork."""
    if workers == 1:
        yield None
        return
    context = get_context("spawn")
    executor = ProcessPoolExecutor(workers, context, initializer=_leave_interrupts_to_parent)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _summarize(output: Path, table: Sequence[QuantizerRow], explain: bool) -> None:
    kept = {row.node for row in table if row.reason is not None}
    integer = {row.node for row in table if row.port is not None}
    console = stdout()
    console.print(f"{len(integer)} nodes run on integers, {len(kept)} stay in float")
    if explain and kept:
        console.print(float_table(table))
    elif kept:
        console.print("--explain, or tvm-quant inspect, says why", style="dim")
    console.print(f"wrote {output} ({output.stat().st_size / 1000:.0f} kB)")
