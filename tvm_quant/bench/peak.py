"""The peak of a CPU: multiply-adds per second of its best instruction for 8-bit products.

Sums that stay in registers and are their own data: no loads, enough sums to cover the latency, and
nothing that a compiler could take out of the loop. What a kernel reaches is a share of this peak.
"""

# TVMScript annotates arguments with calls.
# mypy: disable-error-code="valid-type"

from __future__ import annotations

import numpy as np
import tvm
from tvm.script import tirx as T  # noqa: N812
from tvm.target import Target
from tvm.tirx import PrimFunc

from tvm_quant.backend import host_target
from tvm_quant.backend.cpu import Dot, Isa, isa_of
from tvm_quant.backend.cpu.intrinsics import multiply_add

SUMS = 12  # independent sums: two units with a latency of at most six cycles
STEPS = 100_000  # of a measurement: a fraction of a millisecond


def peak_gops(target: Target | None = None, *, dtype: str = "uint8", repeats: int = 11) -> float:
    """Measured peak of one core in 1e9 operations per second; a multiply-add counts as two.

    Args:
        target: of this machine; without, all that it has.
        dtype: of the data that is multiplied with int8 weights.
        repeats: the median counts.

    Raises:
        ValueError: the target has no instruction for such products.
    """
    target = target or host_target()
    isa = isa_of(target)
    dot = isa.dot(dtype, pair=0)
    if dot is None:
        raise ValueError(f"{isa.name} has no instruction for {dtype} times int8.")
    compiled = tvm.compile(tvm.IRModule({"main": peak_loop(isa, dot)}), target)
    weights, sums = (
        tvm.runtime.tensor(np.ones(shape, dtype))
        for shape, dtype in [
            ((isa.lanes * dot.size,), "int8"),
            ((SUMS * isa.lanes,), "int32"),
        ]
    )
    timer = compiled.mod.time_evaluator("main", tvm.cpu(), number=1, repeat=repeats)
    seconds = float(np.median(timer(weights, sums).results))
    return 2 * SUMS * STEPS * isa.lanes * dot.size / seconds / 1e9


def peak_loop(isa: Isa, dot: Dot, *, steps: int = STEPS) -> PrimFunc:
    """`steps` times one instruction on each of `SUMS` vectors of sums.

    Its buffers are weights: int8, (lanes * dot.size,), and sums: int32, (SUMS * lanes,), which are
    read and written.
    """
    lanes, size = isa.lanes, dot.size
    vector, bytes_ = f"int32x{lanes}", f"int8x{lanes * size}"

    @T.prim_func(s_tir=True)
    def main(
        weights: T.Buffer((lanes * size,), "int8"),
        sums: T.Buffer((SUMS * lanes,), "int32"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        total = T.alloc_buffer((SUMS * lanes,), "int32", scope="local")
        for i in T.unroll(SUMS):
            total[T.ramp(i * lanes, 1, lanes)] = sums.vload([i * lanes], vector)
        for _ in T.serial(steps):
            for i in T.unroll(SUMS):
                total[T.ramp(i * lanes, 1, lanes)] = multiply_add(
                    total.vload([i * lanes], vector),
                    total.vload([i * lanes], vector),
                    weights.vload([0], bytes_),
                    dot,
                )
        for i in T.unroll(SUMS):
            sums[T.ramp(i * lanes, 1, lanes)] = total.vload([i * lanes], vector)

    return main
