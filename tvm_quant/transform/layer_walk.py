"""Running a network up to one weighted layer after the other, each layer once on each batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import IRModule, relax

from tvm_quant.backend import Functions
from tvm_quant.ir import bindings
from tvm_quant.ir.rebuild import rebuild
from tvm_quant.ir.segments import cut
from tvm_quant.ir.signature import main_function
from tvm_quant.op import contraction_axes

Array = npt.NDArray[Any]
#: What a batch has reached: what later segments read.
Values = dict[relax.Var, Any]


class LayerWalk:
    """A network, cut after each layer, that subtracts given shifts from the results of its layers.

    Args:
        mod: the network; what follows the last layer does not run.
        layers: variables of the contractions, in order.
    """

    def __init__(self, mod: IRModule, layers: list[str]):
        self.layers = layers
        self._params = list(main_function(mod).params)
        self._zeros: dict[relax.Var, Array] = {}
        self._shifts: dict[str, relax.Var] = {}
        self._means: dict[str, relax.Var] = {}
        graph = self._graph(mod)
        built, self._segments = cut(graph, [self._means[name] for name in layers])
        self._functions = Functions(built)

    def start(self, batch: Mapping[str, Array]) -> Values:
        """The values that a batch starts with; no shifts."""
        inputs = {param: batch[str(param.name)] for param in self._params}
        return {**inputs, **self._zeros}

    def run(self, layer: str, values: Values) -> Array:
        """Run to the end of a layer, the next one; takes `values` there.

        Returns:
            Mean of each output channel, (rows, O).
        """
        index = self.layers.index(layer)
        segment = self._segments[index]
        given = self._functions.call(segment.name, *[values[var] for var in segment.reads])
        values.update(zip(segment.gives, given, strict=True))
        (means,) = self._functions.arrays(values[self._means[layer]])
        needed = {var for later in self._segments[index + 1 :] for var in later.reads}
        for var in set(values) - needed:
            del values[var]
        return means

    def subtract(self, layer: str, shift: Array, values: Values) -> None:
        """Take a shift, (O,), away from the result of a layer that has run."""
        var = self._shifts[layer]
        values[var] = shift.reshape(self._zeros[var].shape).astype("float32")

    def peak_bytes(self, batch: Mapping[str, Array]) -> int:
        """Most that the values of a batch take before a layer; runs the whole walk."""
        values = self.start(batch)
        peak = 0
        for layer in self.layers:
            held = [array for value in values.values() for array in self._functions.arrays(value)]
            peak = max(peak, sum(array.nbytes for array in held))
            self.run(layer, values)
        return peak

    def _graph(self, mod: IRModule) -> IRModule:
        calls = {str(b.var.name): b.value for b in bindings(main_function(mod))}
        for name in self.layers:
            axis = contraction_axes(calls[name]).output
            shape = [1] * int(calls[name].ty.ndim)
            shape[axis] = int(calls[name].ty.shape[axis])
            self._shifts[name] = relax.Var(f"{name}_shift", relax.TensorType(shape, "float32"))
            self._zeros[self._shifts[name]] = np.zeros(shape, "float32")

        def visit(builder: relax.BlockBuilder, old: relax.Var, new: relax.Var) -> relax.Var:
            name = str(old.name)
            if name not in self._shifts:
                return new
            self._means[name] = builder.emit(channel_means(new, calls[name]), f"{name}_means")
            return builder.emit(relax.op.subtract(new, self._shifts[name]), f"{name}_shifted")

        return rebuild(
            mod,
            visit,
            lambda: relax.Tuple(list(self._means.values())),
            extra_params=list(self._shifts.values()),
        )


def channel_means(result: relax.Expr, call: relax.Call) -> relax.Expr:
    """Mean of each row and output channel of the result of a contraction: (rows, O)."""
    output = contraction_axes(call).output
    return relax.op.mean(result, [axis for axis in range(1, int(call.ty.ndim)) if axis != output])
