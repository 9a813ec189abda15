"""Measuring the mean shift of each weighted layer, with the layers before it corrected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from tvm import IRModule, relax

from tvm_quant.backend import Runner
from tvm_quant.dataset.check import is_batched
from tvm_quant.errors import CalibrationError
from tvm_quant.ir import bindings, constant_value, io_signature
from tvm_quant.ir.rebuild import rebuild
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Role, contraction_axes, is_simulated, role_of
from tvm_quant.statistics import outlier_magnitudes
from tvm_quant.transform.quantizers import strip_quantizers

Array = npt.NDArray[Any]
Batches = Iterable[Mapping[str, Array]]


def measure_shifts(
    mod: IRModule, dataset: Batches, *, samples: int, progress: bool = False
) -> dict[str, Array]:
    """Mean of the quantized result minus mean of the float result, per output channel.

    Layers are taken in execution order. When a layer is measured, the shifts of the layers before
    it are already taken away. Samples that are outliers in a layer are left out there and in all
    later ones: they left the range of a quantizer.

    Args:
        mod: annotated and calibrated.
        dataset: batches by input name; read once.
        samples: how many samples to measure on, at most.
        progress: show a bar.

    Returns:
        {variable of the contraction: (O,) float64}.

    Raises:
        CalibrationError: no sample gives finite values.
    """
    layers = weighted_layers(main_function(mod))
    if not layers:
        return {}
    batches = _first(dataset, samples, batched=is_batched(io_signature(mod)))
    wanted = _Probe(strip_quantizers(mod), layers).run(batches, {})
    kept = _kept_rows(wanted)
    probe = _Probe(mod, layers)
    shifts: dict[str, Array] = {}
    console = Console(stderr=True)
    for name in track(
        layers, "Bias correction", disable=not progress, console=console, transient=True
    ):
        actual = probe.run(batches, shifts)[name]
        shifts[name] = actual.mean(kept[name]) - wanted[name].mean(kept[name])
    return shifts


def weighted_layers(func: relax.Function) -> list[str]:
    """Variables of the contractions with a quantized constant weight, in order."""
    values = {binding.var: binding.value for binding in bindings(func)}
    found = []
    for var, call in values.items():
        weight = values.get(call.args[1]) if role_of(call) is Role.CONTRACTION else None
        if is_simulated(weight) and constant_value(weight.args[0]) is not None:
            found.append(str(var.name))
    return found


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """What a layer gave for each row of its result: a sample, where rows are samples.

    Attributes:
        means: of each output channel, float64, (rows, O).
        reach: largest magnitude, (rows,).
        weights: samples that each row stands for, (rows,).
    """

    means: Array
    reach: Array
    weights: Array

    @classmethod
    def of(cls, means: Array, reach: Array, samples: int) -> _Measured:
        """Of a batch. Rows that are no samples are averaged."""
        means, reach = means.astype("float64"), reach.astype("float64")
        if len(means) == samples:
            return cls(means=means, reach=reach, weights=np.ones(samples))
        return cls(
            means=means.mean(axis=0, keepdims=True),
            reach=reach.max(keepdims=True),
            weights=np.full(1, float(samples)),
        )

    @classmethod
    def join(cls, parts: list[_Measured]) -> _Measured:
        """The rows of all parts."""
        return cls(
            means=np.concatenate([part.means for part in parts]),
            reach=np.concatenate([part.reach for part in parts]),
            weights=np.concatenate([part.weights for part in parts]),
        )

    def mean(self, kept: Array) -> Array:
        """Mean of each output channel over the rows that are `kept`: (O,)."""
        return np.asarray(np.average(self.means[kept], axis=0, weights=self.weights[kept]))


def _kept_rows(measured: Mapping[str, _Measured]) -> dict[str, Array]:
    """Rows of each layer that are finite and no outliers, in this layer and those before it."""
    kept: dict[str, Array] = {}
    known: dict[int, Array] = {}
    for name, layer in measured.items():
        finite = np.isfinite(layer.reach) & np.isfinite(layer.means).all(axis=1)
        if not finite.any():
            raise CalibrationError(
                f"Cannot correct the bias of layer '{name}': every calibration sample gives NaN or "
                "Inf there. Check the preprocessing and the weights before it."
            )
        good = finite.copy()
        good[finite] = ~outlier_magnitudes(layer.reach[finite])
        both = good & known.get(len(good), good)
        kept[name] = known[len(good)] = both if both.any() else good
    return kept


class _Probe:
    """Runs a network that subtracts given shifts from the results of its layers, and watches them.

    Args:
        mod: the network.
        layers: variables to watch.
    """

    def __init__(self, mod: IRModule, layers: list[str]):
        self.layers = layers
        self.zeros: dict[str, Array] = {}
        self.runner = Runner(self._graph(mod))

    def run(
        self, batches: list[tuple[Mapping[str, Array], int]], shifts: Mapping[str, Array]
    ) -> dict[str, _Measured]:
        """What each layer gives, its own shift and those before it taken away.

        Args:
            batches: (inputs, number of samples).
            shifts: of some layers, (O,).
        """
        given = {f"{name}_shift": self._as_operand(name, shifts) for name in self.layers}
        rows: dict[str, list[_Measured]] = {name: [] for name in self.layers}
        for batch, samples in batches:
            results = self.runner.run({**batch, **given})
            for name, means, reach in zip(self.layers, results[::2], results[1::2], strict=True):
                rows[name].append(_Measured.of(means, reach, samples))
        return {name: _Measured.join(measured) for name, measured in rows.items()}

    def _as_operand(self, name: str, shifts: Mapping[str, Array]) -> Array:
        zero = self.zeros[name]
        return shifts[name].reshape(zero.shape).astype("float32") if name in shifts else zero

    def _graph(self, mod: IRModule) -> IRModule:
        calls = {str(b.var.name): b.value for b in bindings(main_function(mod))}
        axes = {name: contraction_axes(calls[name]).output for name in self.layers}
        params: dict[str, relax.Var] = {}
        for name, axis in axes.items():
            shape = [1] * int(calls[name].ty.ndim)
            shape[axis] = int(calls[name].ty.shape[axis])
            self.zeros[name] = np.zeros(shape, "float32")
            params[name] = relax.Var(f"{name}_shift", relax.TensorType(shape, "float32"))
        watched: list[relax.Var] = []

        def visit(builder: relax.BlockBuilder, old: relax.Var, new: relax.Var) -> relax.Var:
            name = str(old.name)
            if name not in params:
                return new
            new = builder.emit(relax.op.subtract(new, params[name]), f"{name}_shifted")
            others = [axis for axis in range(1, int(new.ty.ndim)) if axis != axes[name]]
            watched.append(builder.emit(relax.op.mean(new, axis=others)))
            watched.append(builder.emit(relax.op.max(relax.op.abs(new), [*others, axes[name]])))
            return new

        return rebuild(mod, visit, lambda: relax.Tuple(watched), extra_params=list(params.values()))


def _first(
    dataset: Batches, samples: int, *, batched: bool
) -> list[tuple[Mapping[str, Array], int]]:
    """The first batches, until they hold `samples`: (inputs, number of samples)."""
    batches: list[tuple[Mapping[str, Array], int]] = []
    for batch in dataset:
        size = len(next(iter(batch.values()))) if batched else 1
        batches.append((batch, size))
        samples -= size
        if samples <= 0:
            break
    return batches
