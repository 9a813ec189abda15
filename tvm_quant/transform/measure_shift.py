"""Measuring the mean shift of each weighted layer, with the layers before it corrected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.progress import track
from tvm import IRModule, relax

from tvm_quant.backend import Runner
from tvm_quant.ir import bindings
from tvm_quant.ir.rebuild import rebuild
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Role, contraction_axes, is_simulated, role_of
from tvm_quant.transform.quantizers import strip_quantizers

Array = npt.NDArray[Any]
Batches = Iterable[Mapping[str, Array]]


def measure_shifts(
    mod: IRModule, dataset: Batches, *, samples: int, progress: bool = False
) -> dict[str, Array]:
    """Mean of the quantized result minus mean of the float result, per output channel.

    Layers are taken in execution order. When a layer is measured, the shifts of the layers before
    it are already taken away.

    Args:
        mod: annotated and calibrated.
        dataset: batches by input name; read once.
        samples: how many samples to measure on, at most.
        progress: show a bar.

    Returns:
        {variable of the contraction: (O,) float64}.
    """
    layers = quantized_layers(main_function(mod))
    if not layers:
        return {}
    batches = _first(dataset, samples)
    wanted = _Probe(strip_quantizers(mod), layers).means(batches, {})
    probe = _Probe(mod, layers)
    shifts: dict[str, Array] = {}
    for name in track(layers, description="bias correction", disable=not progress):
        shifts[name] = probe.means(batches, shifts)[name] - wanted[name]
    return shifts


def quantized_layers(func: relax.Function) -> list[str]:
    """Variables of the contractions with a quantized constant weight, in order."""
    values = {binding.var: binding.value for binding in bindings(func)}
    return [
        str(var.name)
        for var, call in values.items()
        if role_of(call) is Role.CONTRACTION
        and all(is_simulated(values.get(arg)) for arg in call.args)
        and not isinstance(values[call.args[1]].args[0], relax.Var)
    ]


class _Probe:
    """Runs a network that subtracts given shifts and returns the channel means of its layers."""

    def __init__(self, mod: IRModule, layers: list[str]):
        self.layers = layers
        self.zeros: dict[str, Array] = {}
        self.axes: dict[str, int] = {}
        self.runner = Runner(self._graph(mod))

    def means(
        self, batches: list[Mapping[str, Array]], shifts: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Mean of each layer's result over all batches, per output channel."""
        given = {
            f"{name}_shift": shifts.get(name, zero.reshape(-1))
            .reshape(zero.shape)
            .astype("float32")
            for name, zero in self.zeros.items()
        }
        sizes = [_size(batch) for batch in batches]
        results = [self.runner.run({**batch, **given}) for batch in batches]
        columns = zip(*results, strict=True)
        return {
            name: np.average([v.astype("float64") for v in column], axis=0, weights=sizes)
            for name, column in zip(self.layers, columns, strict=True)
        }

    def _graph(self, mod: IRModule) -> IRModule:
        params: dict[str, relax.Var] = {}
        means: list[relax.Var] = []
        for binding in bindings(main_function(mod)):
            name = str(binding.var.name)
            if name in self.layers:
                shape = [1] * int(binding.var.ty.ndim)
                axis = contraction_axes(binding.value).output
                shape[axis] = int(binding.var.ty.shape[axis])
                self.axes[name] = axis
                self.zeros[name] = np.zeros(shape, "float32")
                params[name] = relax.Var(f"{name}_shift", relax.TensorType(shape, "float32"))

        def visit(builder: relax.BlockBuilder, old: relax.Var, new: relax.Var) -> relax.Var:
            name = str(old.name)
            if name not in params:
                return new
            new = builder.emit(relax.op.subtract(new, params[name]))
            others = [axis for axis in range(int(new.ty.ndim)) if axis != self.axes[name]]
            means.append(builder.emit(relax.op.mean(new, axis=others)))
            return new

        return rebuild(mod, visit, lambda: relax.Tuple(means), extra_params=list(params.values()))


def _first(dataset: Batches, samples: int) -> list[Mapping[str, Array]]:
    batches: list[Mapping[str, Array]] = []
    for batch in dataset:
        if samples <= 0:
            break
        batches.append(batch)
        samples -= _size(batch)
    return batches


def _size(batch: Mapping[str, Array]) -> int:
    return len(next(iter(batch.values())))
