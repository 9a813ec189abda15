"""Realized integers against simulation, layer by layer: both get the same integers.

The network is cut at each of its quantizers:

Before    q = simulated_quantize(y, s, z)
          r = f(q)
After     q = simulated_quantize(y, s, z)            a result
          r = f(simulated_quantize(q_given, s, z))   q_given is a further input

so that an error of one layer cannot reach the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import IRModule, relax

from tvm_quant.backend import Runner
from tvm_quant.bench.samples import Array
from tvm_quant.ir import bindings, constant_value, node_name
from tvm_quant.ir.rebuild import rebuild
from tvm_quant.ir.signature import main_function
from tvm_quant.op import RequantizeMode, is_simulated, scale_of
from tvm_quant.transform import Realize


@dataclass(frozen=True, kw_only=True)
class LayerSteps:
    """How far the integers of one tensor are from simulation.

    Attributes:
        node: what computes the tensor.
        steps: the largest difference, in steps of its grid.
        share: of the elements that differ, 0 to 1.
        elements: how many were compared.
    """

    node: str
    steps: int
    share: float
    elements: int


def compare_layers(
    simulated: IRModule, batches: Iterable[Mapping[str, Array]], mode: RequantizeMode
) -> list[LayerSteps]:
    """Compare every quantized tensor.

    Args:
        simulated: annotated and calibrated, as `quantize` with `simulate=True` returns it.
        batches: inputs of the network.
        mode: of Realize.
    """
    found = quantized_tensors(simulated)
    if not found:
        return []
    whole = Runner(with_quantizers_as_results(simulated, cut=False))
    layers = with_quantizers_as_results(simulated, cut=True)
    runners = Runner(layers), Runner(tvm.transform.Sequential([Realize(mode)])(layers))
    counts = {name: [0, 0, 0] for name in found}
    for batch in batches:
        given = {_given(n): v for n, v in zip(found, whole.run(batch), strict=True)}
        results = (runner.run({**batch, **given}) for runner in runners)
        for (name, call), one, other in zip(found.items(), *results, strict=True):
            steps = np.abs(np.rint((one - other) / scale_of(call)[0]))
            count = counts[name]
            count[0] = max(count[0], int(steps.max(initial=0)))
            count[1] += int(np.count_nonzero(steps))
            count[2] += steps.size
    names = _nodes(simulated)
    return [
        LayerSteps(node=names[name], steps=steps, share=differ / max(total, 1), elements=total)
        for name, (steps, differ, total) in counts.items()
    ]


def quantized_tensors(mod: IRModule) -> dict[str, relax.Call]:
    """The quantizers of what is computed at run time, by variable."""
    return {
        str(binding.var.name): binding.value
        for binding in bindings(main_function(mod))
        if is_simulated(binding.value) and constant_value(binding.value.args[0]) is None
    }


def with_quantizers_as_results(mod: IRModule, *, cut: bool) -> IRModule:
    """The network that returns the tuple of its quantized tensors, cut at each of them or not."""
    found = quantized_tensors(mod)
    given = {
        name: relax.Var(_given(name), relax.TensorType(call.ty.shape, call.ty.dtype))
        for name, call in found.items()
    }
    results: list[relax.Var] = []

    def visit(builder: relax.BlockBuilder, old: relax.Var, new: relax.Var) -> relax.Var:
        name = str(old.name)
        if name not in found:
            return new
        results.append(new)
        if not cut:
            return new
        call = found[name]
        return builder.emit(relax.Call(call.op, [given[name], *call.args[1:]], call.attrs))

    extra = list(given.values()) if cut else []
    return rebuild(mod, visit, lambda: relax.Tuple(results), extra_params=extra)


def _given(name: str) -> str:
    return f"{name}_given"


def _nodes(mod: IRModule) -> dict[str, str]:
    func = main_function(mod)
    nodes = {}
    for name, call in quantized_tensors(mod).items():
        nodes[name] = node_name(func, call.args[0])
    return nodes
