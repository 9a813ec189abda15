"""The whole of post-training quantization, as a table of contents."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, Protocol

import numpy.typing as npt
import tvm
from tvm import IRModule

from tvm_quant.config import QuantizeConfig, WeightRounding
from tvm_quant.dataset import CheckedDataset, as_dataset
from tvm_quant.dataset.check import is_batched
from tvm_quant.estimator import activation_estimator, weight_estimator
from tvm_quant.hardware import hardware_row
from tvm_quant.ir import TensorInfo, io_signature
from tvm_quant.op import brings_scales
from tvm_quant.statistics import Statistics
from tvm_quant.transform import (
    Annotate,
    CalibrateActivations,
    CalibrateWeights,
    CorrectBias,
    Equalize,
    FitAccumulators,
    MatchScales,
    Prepare,
    Profile,
    Realize,
    RoundBias,
    RoundWeights,
    UntieScales,
)
from tvm_quant.transform.calibrate_activations import needs_counts
from tvm_quant.transform.calibration_samples import SAMPLES, Batches, Chosen
from tvm_quant.transform.weight_rounding import LayerInputs, Moments

Params = Mapping[str, npt.NDArray[Any]]


class AccuracyControl(Protocol):
    """Quantizes again until a network is good enough, as `tvm_quant.AccuracyTarget` does."""

    def quantize(
        self,
        mod: IRModule,
        params: Params | None,
        dataset: Any,
        config: QuantizeConfig,
        *,
        executor: Executor | None,
        progress: bool,
        statistics: Statistics | None,
    ) -> IRModule:
        """The network that is good enough; arguments as for `tvm_quant.quantize`."""


def quantize(
    mod: IRModule,
    params: Params | None = None,
    dataset: Any = None,
    config: QuantizeConfig | None = None,
    *,
    executor: Executor | None = None,
    progress: bool = False,
    statistics: Statistics | None = None,
    accuracy: AccuracyControl | None = None,
) -> IRModule:
    """Turn a float network into an integer one.

    A network that brings its quantizers, as `tvm_quant.load` returns it from a file that another
    tool quantized, is not calibrated: it becomes the integers that the file means.

    Args:
        mod: a Relax module with a function `main`, as `tvm_quant.load` returns it; left as it is.
        params: weights that are inputs of `main`, by name; they become constants.
        dataset: calibration data: any iterable of batches (arrays, tuples, dicts by input name,
            torch tensors), stacked arrays, an `.npz` file or a folder of images; see
            `tvm_quant.dataset.as_dataset`. Without it every activation is assumed to lie within
            +-`config.global_scale`.
        config: see `QuantizeConfig`.
        executor: runs calibration on its workers. Without, a thread for each core works, up to
            four. The result has the same bits.
        progress: show progress bars.
        statistics: of an earlier run on the same network: calibrates without running all of the
            data again, to the same bits. An empty one is filled. Weights are rounded to nearest
            where there are statistics but no data set.
        accuracy: what has to be left of a metric, such as `AccuracyTarget(metric="top1",
            max_drop=0.1, data=...)`: layers go back to float until it is.
            `tvm_quant.control_accuracy` does the same and reports what each of them bought.

    Returns:
        A module of integer operators that `tvm_quant.compile` and plain `tvm.compile` accept.

    Raises:
        ConfigError: the configuration contradicts itself, the network or the hardware row.
        DatasetError: the data does not fit the inputs; raised before any long work.
        CalibrationError: a quantizer has no usable range.

    Example:
        mod, params = tvm_quant.load("model.onnx")
        int8 = tvm_quant.quantize(mod, params, dataset="calibration.npz")
    """
    config = config or QuantizeConfig()
    if accuracy is not None:
        return accuracy.quantize(
            mod,
            params,
            dataset,
            config,
            executor=executor,
            progress=progress,
            statistics=statistics,
        )
    if brings_scales(mod):
        _warn_unused(dataset, statistics)
        return tvm.transform.Sequential(realization(config, params), name="tvm_quant")(mod)
    data = _open(mod, params, dataset, config)
    passes = pipeline(config, params, data, executor, progress, statistics)
    return tvm.transform.Sequential(passes, name="tvm_quant")(mod)


def pipeline(
    config: QuantizeConfig,
    params: Params | None = None,
    dataset: CheckedDataset | None = None,
    executor: Executor | None = None,
    progress: bool = False,
    statistics: Statistics | None = None,
    moments: dict[str, Moments] | None = None,
) -> list[tvm.transform.Pass]:
    """The passes of `quantize`, in order.

    Args:
        config, params, dataset, executor, progress, statistics: as for `quantize`.
        moments: of what the layers read, by variable, as an earlier run on the same network left
            them; an empty dictionary is filled.

    Raises:
        ConfigError: the config names no hardware row or estimator, or wants data that is missing.
    """
    hardware_row(config.hardware)
    if config.weight_estimator is not None:
        weight_estimator(config.weight_estimator, config.estimator_options)
    activation_estimator(config.activation_estimator, config.estimator_options)
    # Those of a caller may serve other estimators later.
    counts = statistics is not None or needs_counts(config)
    if statistics is None:
        statistics = Statistics()
    has_data = dataset is not None or len(statistics) > 0
    if not has_data:
        config = replace(config, activation_estimator="global_scale")
    known = statistics if has_data else None
    inputs = LayerInputs(moments={} if moments is None else moments)
    wanted = moments is not None or config.weight_rounding is not WeightRounding.NEAREST
    read = inputs if wanted else None
    profiling = []
    if dataset is not None and not len(statistics):
        profiling = [_profile(config, dataset, statistics, read, executor, progress, counts=counts)]
    elif dataset is not None and wanted and not inputs.moments:
        few = Chosen(dataset, SAMPLES, is_batched(dataset.signature))
        profiling = [_profile(config, few, Statistics(), read, executor, progress, counts=False)]
    return [
        Prepare(params),
        Equalize(config),
        Annotate(config),
        CalibrateWeights(config),
        *profiling,
        CalibrateActivations(known, config),
        UntieScales(config, known),
        *([MatchScales(statistics, config, inputs=inputs)] if has_data else []),
        FitAccumulators(config),
        CorrectBias(config, known, dataset, progress=progress),
        RoundWeights(config, dataset, executor=executor, progress=progress, inputs=inputs),
        RoundBias(),
        *_realize(config),
    ]


def realization(config: QuantizeConfig, params: Params | None = None) -> list[tvm.transform.Pass]:
    """The passes for a network that brings its quantizers."""
    return [Prepare(params), *_realize(config)]


def _realize(config: QuantizeConfig) -> list[tvm.transform.Pass]:
    if config.simulate:
        return []
    return [Realize(config.requantize or hardware_row(config.hardware).requantize)]


def _warn_unused(dataset: Any, statistics: Statistics | None) -> None:
    if dataset is not None or (statistics is not None and len(statistics)):
        warnings.warn(
            "The network brings its quantizers; the calibration data is not used. Load the float "
            "network to calibrate it.",
            AlreadyQuantizedWarning,
            stacklevel=3,
        )


class AlreadyQuantizedWarning(UserWarning):
    """Data was given to calibrate a network that has its scales."""


def _profile(
    config: QuantizeConfig,
    dataset: Batches,
    statistics: Statistics,
    inputs: LayerInputs | None,
    executor: Executor | None,
    progress: bool,
    *,
    counts: bool,
) -> Profile:
    return Profile(
        dataset,
        statistics,
        executor=executor,
        progress=progress,
        chunk=config.profile_chunk,
        on_bad=config.on_bad,
        counts=counts,
        inputs=inputs,
    )


def _open(
    mod: IRModule, params: Params | None, dataset: Any, config: QuantizeConfig
) -> CheckedDataset | None:
    if dataset is None:
        return None
    return as_dataset(
        dataset,
        data_inputs(mod, params),
        limit=config.max_samples,
        on_bad=config.on_bad,
        on_zero=config.on_zero,
    )


def data_inputs(mod: IRModule, params: Params | None) -> list[TensorInfo]:
    """Inputs of `main` that are data, not weights."""
    return [info for info in io_signature(mod) if info.name not in (params or {})]
