"""Tensor intrinsics: what one instruction of the target computes, for `Schedule.tensorize`.

    pair_dot    total[l] += data[0] * weight[l, 0] + data[1] * weight[l, 1]
                int32 += int16 * int8
    quad_dot    total[l] += data[0] * weight[l, 0] + ... + data[3] * weight[l, 3]
                int32 += uint8 * int8, or int8 * int8

    tap_dot     total[l] += data[0, l] * weight[l, 0] + ... + data[n - 1, l] * weight[l, n - 1]
                the same instruction on up to four rows of data, one product of each for every lane

All are exact. Pairs are products of 16 bits summed in 32 (`vpmaddwd`, `vpdpwssd`); quads are
products of 8 bits summed in 32 (`vpdpbusd`, `sdot`, `usdot`), or two in 16 with saturation first
(`vpmaddubsw`), for weights with which that cannot happen. The data of a sum has 32 bits and is
broadcast to all lanes; that of taps is interleaved.

Source: Intel SDM vol. 2, PMADDWD, PMADDUBSW, VPDPBUSD and VPDPWSSD; Arm ARM, C7.2, SDOT (vector)
and USDOT (vector).
"""

# TVMScript annotates arguments with calls.
# mypy: disable-error-code="valid-type"

from __future__ import annotations

import functools
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T  # noqa: N812
from tvm.tirx import Expr, PrimFunc, Shuffle, const

from tvm_quant.backend.cpu.isa import Dot
from tvm_quant.backend.cpu.wrapping import wrapping_add

NAMES = {2: "pair_dot", 4: "quad_dot"}


@functools.cache
def dot_intrinsic(lanes: int, dot: Dot, weight: str = "int8") -> str:
    """Name of the registered tensor intrinsic of `dot` for `lanes` sums at once.

    Its buffers are data: (dot.size,), weight: (lanes, dot.size), total: int32, (lanes,).

    Args:
        lanes: of the sums.
        dot: the instruction.
        weight: type of the weights; int8 ones are converted to what the instruction reads.

    >>> from tvm_quant.backend.cpu.isa import ISAS
    >>> dot_intrinsic(16, ISAS[0].dots[0])
    'tvm_quant.quad_dot_uint8_int8_16.llvm.x86.avx512.vpdpbusd.512'
    """
    name = f"tvm_quant.{NAMES[dot.size]}_{dot.data}_{weight}_{lanes}.{dot.instruction}"
    description = _description(lanes, dot, weight)
    implementation = _implementation(lanes, dot, weight)
    TensorIntrin.register(name, description, implementation, override=True)
    return name


@functools.cache
def tap_intrinsic(lanes: int, dot: Dot, taps: int) -> str:
    """Name of the registered tensor intrinsic of `dot` for `taps` products per channel.

    Its buffers are data: (taps, 1, lanes), weight: int8, (lanes, taps) with a stride of dot.size,
    the rest of which is zero, and total: int32, (lanes,).
    """
    name = f"tvm_quant.tap_dot_{dot.data}_{lanes}_{taps}.{dot.instruction}"
    description = _tap_description(lanes, dot, taps)
    implementation = _tap_implementation(lanes, dot, taps)
    TensorIntrin.register(name, description, implementation, override=True)
    return name


def multiply_add(total: Expr, data: Expr, weight: Expr, dot: Dot) -> Expr:
    """The sums after one instruction.

    Args:
        total: int32 x lanes.
        data: int32 x lanes, the data of each sum.
        weight: (lanes * dot.size), int8 or what the instruction reads.
        dot: the instruction.
    """
    lanes = total.ty.dtype.lanes
    operand = f"{_operand_type(dot)}x{lanes * dot.size}"
    operands = [T.reinterpret(data, dtype=operand), T.cast(weight, operand)]
    sums = f"int32x{lanes}"
    if dot.accumulates:
        return _call(dot.instruction, sums, total, *operands)
    if dot.widening is None:
        return wrapping_add(total, _call(dot.instruction, sums, *operands))
    pairs = _call(dot.instruction, f"int16x{2 * lanes}", *operands)
    return total + _call(dot.widening, sums, pairs, T.broadcast(T.int16(1), 2 * lanes))


def _call(instruction: str, dtype: str, *operands: Expr) -> Expr:
    function = T.llvm_lookup_intrinsic_id(instruction)
    return T.call_llvm_pure_intrin(function, *operands, dtype=dtype)


def _operand_type(dot: Dot) -> str:
    """LLVM's integers have no sign: all 8-bit operands are declared alike."""
    return "int16" if dot.data == "int16" else "int8"


def _description(lanes: int, dot: Dot, weight_dtype: str) -> PrimFunc:
    dtype, size = dot.data, dot.size

    @T.prim_func(s_tir=True)
    def description(
        data: T.Buffer((size,), dtype, offset_factor=1),
        weight: T.Buffer((lanes, size), weight_dtype, offset_factor=1),
        total: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(total[0:lanes], data[0:size], weight[0:lanes, 0:size])
            T.writes(total[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, size):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        total[vi] = total[vi] + T.cast(data[vk], "int32") * T.cast(
                            weight[vi, vk], "int32"
                        )

    return description


def _implementation(lanes: int, dot: Dot, weight_dtype: str) -> PrimFunc:
    dtype, size = dot.data, dot.size
    sums, word, weights = f"int32x{lanes}", f"{dtype}x{size}", f"{weight_dtype}x{lanes * size}"

    @T.prim_func(s_tir=True)
    def implementation(
        data: T.Buffer((size,), dtype, offset_factor=1),
        weight: T.Buffer((lanes, size), weight_dtype, offset_factor=1),
        total: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(total[0:lanes], data[0:size], weight[0:lanes, 0:size])
            T.writes(total[0:lanes])
            total[T.ramp(T.int32(0), 1, lanes)] = multiply_add(
                total.vload([0], dtype=sums),
                T.broadcast(T.reinterpret(data.vload([0], word), dtype="int32"), lanes),
                weight.vload([0, 0], dtype=weights),
                dot,
            )

    return implementation


def interleaved(data: Any, rows: int, lanes: int, count: int) -> Expr:
    """`count` values beside each other for each lane: one of each row, and zero where none is left.

    Args:
        data: buffer (rows, 1, lanes) of 8-bit integers.
        rows: at most `count`.
        lanes: of the vectors that are read.
        count: a power of two.

    Returns:
        A vector of lanes * count values.
    """
    dtype = str(data.dtype)
    vectors = [data.vload([row, 0, 0], f"{dtype}x{lanes}") for row in range(rows)]
    vectors += [T.broadcast(const(0, dtype), lanes)] * (count - rows)
    order = [row * lanes + lane for lane in range(lanes) for row in range(count)]
    return Shuffle(vectors, [const(index, "int32") for index in order])


def _tap_description(lanes: int, dot: Dot, taps: int) -> PrimFunc:
    dtype, size = dot.data, dot.size

    @T.prim_func(s_tir=True)
    def description(a: T.handle, b: T.handle, c: T.handle) -> None:
        row, pixel = T.int64(), T.int64()
        data = T.match_buffer(a, (taps, 1, lanes), dtype, offset_factor=1, strides=[row, pixel, 1])
        weight = T.match_buffer(b, (lanes, taps), "int8", offset_factor=1, strides=[size, 1])
        total = T.match_buffer(c, (lanes,), "int32", offset_factor=1)
        with T.sblock("root"):
            T.reads(total[0:lanes], data[0:taps, 0:1, 0:lanes], weight[0:lanes, 0:taps])
            T.writes(total[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, taps):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        total[vi] = total[vi] + T.cast(data[vk, 0, vi], "int32") * T.cast(
                            weight[vi, vk], "int32"
                        )

    return description


def _tap_implementation(lanes: int, dot: Dot, taps: int) -> PrimFunc:
    dtype, size = dot.data, dot.size
    sums, bytes_ = f"int32x{lanes}", f"int8x{lanes * size}"

    @T.prim_func(s_tir=True)
    def implementation(a: T.handle, b: T.handle, c: T.handle) -> None:
        row, pixel = T.int64(), T.int64()
        data = T.match_buffer(a, (taps, 1, lanes), dtype, offset_factor=1, strides=[row, pixel, 1])
        weight = T.match_buffer(b, (lanes, taps), "int8", offset_factor=1, strides=[size, 1])
        total = T.match_buffer(c, (lanes,), "int32", offset_factor=1)
        with T.sblock("root"):
            T.reads(total[0:lanes], data[0:taps, 0:1, 0:lanes], weight[0:lanes, 0:taps])
            T.writes(total[0:lanes])
            total[T.ramp(T.int32(0), 1, lanes)] = multiply_add(
                total.vload([0], dtype=sums),
                T.reinterpret(interleaved(data, taps, lanes, size), dtype=sums),
                weight.vload([0, 0], dtype=bytes_),
                dot,
            )

    return implementation
