"""Where the time of a module goes: its layers, and its other kernels.

Fusion keeps no names. So the kernels of contractions are matched with the contractions of the
module in the order in which they run, each with one of its shapes: fusion may exchange branches
that run side by side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import tvm
from tvm import IRModule, relax

from tvm_quant.backend.build import compile_watched
from tvm_quant.bench.contractions import Contraction, Shape, contractions
from tvm_quant.bench.samples import Array
from tvm_quant.ir import io_signature

#: In the name of a kernel that the CPU backend makes of a contraction.
HINTS = ("contract", "winograd", "depthwise", "grouped")
RUNTIME = "vm.builtin."  # calls that compute nothing


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """What one layer takes, or all calls of one other kernel.

    Attributes:
        name: of the node, as the model spells it; of other kernels their own.
        what: as in `Contraction`; of other kernels, how often they run.
        output: shape.
        us: median over the rounds in microseconds; 2 to 5 of them are the clock's.
        operations: as in `Contraction`; 0 for other kernels.
    """

    name: str
    what: str
    output: Shape
    us: float
    operations: int = 0

    @property
    def gops(self) -> float:
        """1e9 operations per second."""
        return self.operations / self.us / 1e3


def layer_times(mod: IRModule, inputs: Mapping[str, Array], *, rounds: int = 20) -> list[LayerTime]:
    """Run a module and tell the time of each layer, then that of all other kernels.

    Args:
        mod: float or realized module, for the CPU.
        inputs: {input name: array}.
        rounds: timed runs, after one to warm up.

    Returns:
        Layers in the order of the module, then other kernels, longest first. Contractions that
        are computed in other ways (products of two activations) are among the other kernels.
    """
    vm = relax.VirtualMachine(compile_watched(mod), tvm.cpu())
    tensors = [tvm.runtime.tensor(inputs[info.name]) for info in io_signature(mod)]
    runs = [_run(vm, tensors) for _ in range(rounds + 1)][1:]
    calls = [
        replace(same[0], us=median(call.us for call in same)) for same in zip(*runs, strict=True)
    ]
    layers = contractions(mod, inputs)
    found = _matched(calls, layers)
    rows = [_layer(layers[layer], calls[found[layer]]) for layer in sorted(found)]
    done = set(found.values())
    return rows + _others([call for index, call in enumerate(calls) if index not in done])


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A kernel that ran; the shapes are those of data, weight, further operands and output."""

    kernel: str
    us: float
    shapes: list[Shape]


def _run(vm: relax.VirtualMachine, tensors: Sequence[Any]) -> list[_Call]:
    """The kernels of one run, in order."""
    calls: list[_Call] = []
    started = 0.0

    def clock(_func: Any, name: str, before: bool, _result: Any, *args: Any) -> None:
        nonlocal started
        us = (time.perf_counter() - started) * 1e6
        if not before and not name.startswith(RUNTIME):
            shapes = [tuple(map(int, arg.shape)) for arg in args if hasattr(arg, "shape")]
            calls.append(_Call(kernel=name, us=us, shapes=shapes))
        started = time.perf_counter()

    vm.set_instrument(clock)
    vm["main"](*tensors)
    return calls


def _matched(calls: Sequence[_Call], layers: Sequence[Contraction]) -> dict[int, int]:
    """{index of a layer: index of the call that computes it}: of those left what fits best."""
    found: dict[int, int] = {}
    for index, call in enumerate(calls):
        left = [layer for layer in range(len(layers)) if layer not in found]
        fitting = [layer for layer in left if _fits(call, layers[layer])]
        if fitting:
            best = max(fitting, key=lambda layer: _closeness(call, layers[layer]))
            found[best] = index
    return found


def _fits(call: _Call, layer: Contraction) -> bool:
    """Whether a kernel can compute a layer.

    Packing fills up the weight, never cuts it. What is fused behind may broadcast the output.
    """
    if len(call.shapes) < 3 or not any(hint in call.kernel for hint in HINTS):
        return False
    data, weight, *_, output = call.shapes
    return (
        data in layer.data
        and math.prod(weight) >= layer.weight
        and math.prod(output) % math.prod(layer.output) == 0
    )


def _closeness(call: _Call, layer: Contraction) -> tuple[int, int, bool]:
    """Of layers that fit, those with the largest outputs, then weights, then the kernel seen."""
    packed, rank = call.shapes[1], len(layer.kernel)
    seen = any(packed[start : start + rank] == layer.kernel for start in range(len(packed)))
    return math.prod(layer.output), layer.weight, seen


def _layer(layer: Contraction, call: _Call) -> LayerTime:
    return LayerTime(
        name=layer.node,
        what=layer.what,
        output=layer.output,
        us=call.us,
        operations=layer.operations,
    )


def _others(calls: Sequence[_Call]) -> list[LayerTime]:
    """One row for each kernel, longest first."""
    by_name: dict[str, list[_Call]] = {}
    for call in calls:
        by_name.setdefault(call.kernel, []).append(call)
    rows = [
        LayerTime(
            name=name,
            what=f"{len(same)} x",
            output=same[0].shapes[-1] if same[0].shapes else (),
            us=sum(call.us for call in same),
        )
        for name, same in by_name.items()
    ]
    return sorted(rows, key=lambda row: row.us, reverse=True)
