"""Measuring the mean shift of each weighted layer, with the layers before it corrected."""

from __future__ import annotations

from collections.abc import Mapping
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
from tvm_quant.op import Role, is_simulated, role_of
from tvm_quant.statistics import outlier_magnitudes
from tvm_quant.transform.calibration_samples import (
    Batch,
    Batches,
    Chosen,
    energy_floor,
    inverse_energy,
)
from tvm_quant.transform.layer_walk import LayerWalk, channel_means
from tvm_quant.transform.quantizers import strip_quantizers

Array = npt.NDArray[Any]

#: Most that the samples may hold between two layers.
MEMORY_BYTES = 256 * 2**20


def measure_shifts(
    mod: IRModule, dataset: Batches, *, samples: int, progress: bool = False
) -> dict[str, Array]:
    """Mean of the quantized result minus mean of the float result, per output channel.

    Layers are taken in execution order. When a layer is measured, the shifts of the layers before
    it are already taken away. The shift is the one that leaves the smallest error beside the
    signal: samples count by the inverse of their energy (mean square of the float result), so that
    one that a range clips does not speak for the others. Samples that are outliers in a layer are
    left out there and in all later ones.

    Every layer runs once on each batch. What later layers read of all samples stands in memory,
    256 MiB of it at most: beyond, batches are left out, though never the first.

    Args:
        mod: annotated and calibrated.
        dataset: batches by input name; read once.
        samples: how many samples to measure on, at most; see `Chosen`.
        progress: show a bar.

    Returns:
        {variable of the contraction: (O,) float64}.

    Raises:
        CalibrationError: no sample gives finite values.
    """
    layers = weighted_layers(main_function(mod))
    if not layers:
        return {}
    batches = list(Chosen(dataset, samples, is_batched(io_signature(mod))).sized())
    walk = LayerWalk(mod, layers)
    batches = _that_fit(batches, walk)
    wanted = _watch(strip_quantizers(mod), layers, batches)
    kept = _kept_rows(wanted)
    reached = [(walk.start(batch), size) for batch, size in batches]
    shifts: dict[str, Array] = {}
    console = Console(stderr=True)
    for name in track(
        layers, "Bias correction", disable=not progress, console=console, transient=True
    ):
        means = [_rows(walk.run(name, values), size) for values, size in reached]
        shifts[name] = wanted[name].mean_difference(np.concatenate(means), kept[name])
        for values, _ in reached:
            walk.subtract(name, shifts[name], values)
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
        energy: mean square, (rows,).
        weights: samples that each row stands for, (rows,).
    """

    means: Array
    reach: Array
    energy: Array
    weights: Array

    @classmethod
    def of(cls, means: Array, reach: Array, energy: Array, samples: int) -> _Measured:
        """Of a batch."""
        rows = _rows(means, samples)
        return cls(
            means=rows,
            reach=reach.astype("float64") if len(rows) == len(reach) else reach.max(keepdims=True),
            energy=_rows(energy, samples),
            weights=np.full(len(rows), samples / len(rows)),
        )

    @classmethod
    def join(cls, parts: list[_Measured]) -> _Measured:
        """The rows of all parts."""
        return cls(
            means=np.concatenate([part.means for part in parts]),
            reach=np.concatenate([part.reach for part in parts]),
            energy=np.concatenate([part.energy for part in parts]),
            weights=np.concatenate([part.weights for part in parts]),
        )

    def mean_difference(self, actual: Array, kept: Array) -> Array:
        """Mean of the means `actual` less these in each channel over the rows `kept`: (O,)."""
        energy = self.energy[kept]
        weights = self.weights[kept] * inverse_energy(energy, energy_floor(energy))
        return np.asarray(np.average((actual - self.means)[kept], axis=0, weights=weights))


def _rows(measured: Array, samples: int) -> Array:
    """What was measured in each row of a batch, in float64; one row, where rows are no samples."""
    measured = measured.astype("float64")
    return measured if len(measured) == samples else measured.mean(axis=0, keepdims=True)


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


def _watch(mod: IRModule, layers: list[str], batches: list[Batch]) -> dict[str, _Measured]:
    """What each layer of a network gives."""
    watched: list[relax.Var] = []

    def visit(builder: relax.BlockBuilder, old: relax.Var, new: relax.Var) -> relax.Var:
        if str(old.name) in layers:
            call = calls[old]
            whole = list(range(1, int(new.ty.ndim)))
            watched.append(builder.emit(channel_means(new, call)))
            watched.append(builder.emit(relax.op.max(relax.op.abs(new), whole)))
            watched.append(builder.emit(relax.op.mean(relax.op.square(new), whole)))
        return new

    calls = {binding.var: binding.value for binding in bindings(main_function(mod))}
    runner = Runner(rebuild(mod, visit, lambda: relax.Tuple(watched)))
    parts: dict[str, list[_Measured]] = {name: [] for name in layers}
    for batch, samples in batches:
        results = iter(runner.run(batch))
        for name in layers:
            measured = next(results), next(results), next(results)
            parts[name].append(_Measured.of(*measured, samples))
    return {name: _Measured.join(measured) for name, measured in parts.items()}


def _that_fit(batches: list[Batch], walk: LayerWalk) -> list[Batch]:
    """As many batches as the walk may hold in memory, evenly spaced; at least one."""
    if len(batches) < 2:
        return batches
    fit = max(1, MEMORY_BYTES // walk.peak_bytes(batches[0][0]))
    return batches[:: -(-len(batches) // fit)]
