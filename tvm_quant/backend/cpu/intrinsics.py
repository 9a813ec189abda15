"""Tensor intrinsics: what one instruction of the target computes, for `Schedule.tensorize`.

    pair_dot    total[l] += data[0] * weight[l, 0] + data[1] * weight[l, 1]
                int32 += int16 * int8, exact

Two products of 16 bits are summed in 32 bits (`vpmaddwd`), never in 16 with saturation
(`vpmaddubsw`), so the result equals plain integer arithmetic.

Source: Intel SDM vol. 2, PMADDWD.
"""

# TVMScript annotates arguments with calls.
# mypy: disable-error-code="valid-type"

from __future__ import annotations

import functools

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T  # noqa: N812
from tvm.tirx import PrimFunc


@functools.cache
def pair_dot(lanes: int, instruction: str) -> str:
    """Name of the registered intrinsic that multiplies pairs for `lanes` sums at once.

    Args:
        lanes: 32-bit lanes of a vector.
        instruction: LLVM's name of it.
    """
    name = f"tvm_quant.pair_dot_{lanes}"
    TensorIntrin.register(
        name, _description(lanes), _implementation(lanes, instruction), override=True
    )
    return name


def _description(lanes: int) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def description(
        data: T.Buffer((2,), "int16", offset_factor=1),
        weight: T.Buffer((lanes, 2), "int8", offset_factor=1),
        total: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(total[0:lanes], data[0:2], weight[0:lanes, 0:2])
            T.writes(total[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, 2):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        total[vi] = total[vi] + T.cast(data[vk], "int32") * T.cast(
                            weight[vi, vk], "int32"
                        )

    return description


def _implementation(lanes: int, instruction: str) -> PrimFunc:
    sums, shorts, bytes_ = f"int32x{lanes}", f"int16x{2 * lanes}", f"int8x{2 * lanes}"

    @T.prim_func(s_tir=True)
    def implementation(
        data: T.Buffer((2,), "int16", offset_factor=1),
        weight: T.Buffer((lanes, 2), "int8", offset_factor=1),
        total: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(total[0:lanes], data[0:2], weight[0:lanes, 0:2])
            T.writes(total[0:lanes])
            pair = T.reinterpret(data.vload([0], "int16x2"), dtype="int32")
            weights = T.cast(weight.vload([0, 0], dtype=bytes_), shorts)
            total[T.ramp(T.int32(0), 1, lanes)] = total.vload(
                [0], dtype=sums
            ) + T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(instruction),
                T.reinterpret(T.broadcast(pair, lanes), dtype=shorts),
                weights,
                dtype=sums,
            )

    return implementation
