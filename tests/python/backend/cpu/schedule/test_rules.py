"""Which rule takes which function, by its structure and never by its names."""

import math
from dataclasses import replace

import pytest
from tvm import s_tir, te, tirx
from tvm.script import tirx as T

from tvm_quant.backend.cpu.contraction import (
    dense,
    per_channel,
    per_channel_taps,
    pointwise_window,
)
from tvm_quant.backend.cpu.isa import ISAS
from tvm_quant.backend.cpu.schedule import RULES
from tvm_quant.backend.cpu.schedule.blocks import loop_extent, root_blocks
from tvm_quant.backend.cpu.schedule.contraction import schedule_contraction
from tvm_quant.backend.cpu.schedule.fallback import schedule_fallback
from tvm_quant.backend.cpu.schedule.window import schedule_window

AVX2 = next(isa for isa in ISAS if isa.name == "avx2")
VNNI = next(isa for isa in ISAS if isa.name == "avx512vnni")


def packed_product_tensors(rows=12, depth=6, channels=16):
    data = te.placeholder((rows, depth), name="data")
    weight = te.placeholder((-(-channels // 8), 1, depth, 8), name="weight")
    total = dense(
        data,
        weight,
        window=pointwise_window(1),
        flat=True,
        rounded=None,
        output=(rows,),
        channels=channels,
        groups=1,
        along_row=False,
        staged_dtype="float32",
        dtype="float32",
    )
    return data, weight, total


def packed_product(rows=12, depth=6, channels=16, name="contract"):
    *operands, total = packed_product_tensors(rows, depth, channels)
    result = te.compute(total.shape, lambda *i: te.max(total(*i), 0.0), name=name)
    return te.create_prim_func([*operands, result])


def swish_of_a_biased_product():
    """Each sum is read twice: x * sigmoid(x) of x = total + bias."""
    *operands, total = packed_product_tensors()
    bias = te.placeholder((16,), name="bias")
    x = te.compute(total.shape, lambda *i: total(*i) + bias[i[-1]], name="biased")
    gate = te.compute(total.shape, lambda *i: te.sigmoid(x(*i)), name="gate")
    result = te.compute(total.shape, lambda *i: x(*i) * gate(*i), name="swish")
    return te.create_prim_func([*operands, bias, result])


def depthwise():
    data = te.placeholder((1, 6, 6, 16), name="data")
    weight = te.placeholder((1, 1, 16), name="weight")
    window = pointwise_window(2)
    total = per_channel(data, weight, window=window, rounded=6, output=(6, 6), dtype="float32")
    return te.create_prim_func([data, weight, total])


def depthwise_by_rows():
    data = te.placeholder((1, 8, 6, 16), "uint8", name="data")
    weight = te.placeholder((1, 1, 1, 16, 4), "int8", name="weight")
    window = replace(pointwise_window(2), kernel=(3, 1))
    total = per_channel_taps(
        data,
        weight,
        window=window,
        taps=3,
        rounded=6,
        output=(6, 6),
        staged_dtype="uint8",
        dtype="int32",
    )
    return te.create_prim_func([data, weight, total])


def gated_image(between):
    """A product of one row multiplies all pixels of an image, as it is or after `between`."""
    *operands, total = packed_product_tensors(rows=1)
    image = te.placeholder((5, 16), name="image")
    gate = te.compute(total.shape, lambda *i: between(total(*i)), name="gate") if between else total
    result = te.compute((5, 16), lambda i, c: image[i, c] * gate[0, c], name="gated")
    return te.create_prim_func([*operands, image, result])


def plain_product():
    a, b = te.placeholder((12, 6), name="a"), te.placeholder((6, 16), name="b")
    k = te.reduce_axis((0, 6), name="k")
    total = te.compute((12, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="contract")
    return te.create_prim_func([a, b, total])


def first_rule(func):
    return next(rule for rule in RULES if rule(func, AVX2) is not None)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (packed_product, schedule_contraction),
        (lambda: packed_product(rows=1), schedule_contraction),
        (lambda: packed_product(name="anything"), schedule_contraction),
        (swish_of_a_biased_product, schedule_contraction),
        (depthwise, schedule_window),
        (plain_product, schedule_fallback),
    ],
    ids=["packed", "one row", "another name", "read twice", "depthwise", "plain product"],
)
def test_the_structure_decides(make, rule):
    assert first_rule(make()) is rule


@pytest.mark.parametrize(
    ("channels", "cache_bytes", "chunks"),
    [
        (16, 1000, 1),  # everything fits
        (16, 100, 1),  # 288 bytes of data do not, and 384 of weights would be read for each chunk
        (8, 200, 2),  # 192 bytes of weights fit, the data in parts
    ],
)
def test_chunks_of_rows_are_those_with_which_least_is_read_again(channels, cache_bytes, chunks):
    func = packed_product(rows=12, depth=6, channels=channels)
    sch = schedule_contraction(func, replace(AVX2, cache_bytes=cache_bytes))
    assert sch is not None
    task, *_ = sch.get_loops(root_blocks(sch)[0])
    assert loop_extent(sch, task) == chunks


@pytest.mark.parametrize("between", [None, te.sigmoid], ids=["as it is", "through a function"])
def test_a_gate_of_all_pixels_is_computed_once(between):
    sch = schedule_contraction(gated_image(between), AVX2)
    assert sch is not None
    update = sch.get_sblock("contract_update")
    assert math.prod(loop_extent(sch, loop) for loop in sch.get_loops(update)) == 6 * 16
    pixels = root_blocks(sch)[-1]
    assert math.prod(loop_extent(sch, loop) for loop in sch.get_loops(pixels)) == 5 * 16
    assert "sigmoid" not in str(sch.get(pixels))


def test_a_sum_that_two_blocks_read_is_no_contraction_of_ours():
    data, weight, total = packed_product_tensors()
    results = [
        te.compute((12, 16), lambda i, j: total[i, j] * 2.0),
        te.compute((12, 16), lambda i, j: total[i, j] * 3.0),
    ]
    func = te.create_prim_func([data, weight, *results])
    assert schedule_contraction(func, AVX2) is None
    assert schedule_fallback(func, AVX2) is not None


@pytest.mark.parametrize(("last", "vectors"), [(128, True), (144, False), (3, False)])
def test_no_vector_crosses_a_row(last, vectors):
    """Its lanes would each divide their index: forty times slower than one element at a time."""
    data = te.placeholder((2, 8, last), "int8", name="data")
    moved = te.compute(data.shape, lambda *i: data(*i).astype("int16") + te.const(1, "int16"))
    sch = schedule_fallback(te.create_prim_func([data, moved]), VNNI)
    assert sch is not None
    assert ("T.vectorized" in sch.mod["main"].script()) is vectors


def test_an_epilogue_that_moves_elements_is_no_epilogue():
    data = te.placeholder((12, 6), name="data")
    weight = te.placeholder((2, 1, 6, 8), name="weight")
    total = dense(
        data,
        weight,
        window=pointwise_window(1),
        flat=True,
        rounded=None,
        output=(12,),
        channels=16,
        groups=1,
        along_row=False,
        staged_dtype="float32",
        dtype="float32",
    )
    turned = te.compute((16, 12), lambda i, j: total[j, i])
    assert schedule_contraction(te.create_prim_func([data, weight, turned]), AVX2) is None


def test_the_sums_of_a_tile_are_unrolled_and_vectorized():
    schedule = schedule_contraction(packed_product(), AVX2)
    update = schedule.get_sblock("contract_update")
    kinds = [schedule.get(loop).kind for loop in schedule.get_loops(update)[-3:]]
    assert kinds == [tirx.ForKind.UNROLLED, tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED]


@pytest.mark.parametrize(("channels", "lanes"), [(16, 8), (12, 4), (10, 8)])
def test_results_are_written_by_half_vectors_where_the_last_is_half(channels, lanes):
    func = packed_product(channels=channels, name="result")
    schedule = schedule_contraction(func, AVX2)
    last = schedule.get(schedule.get_loops(schedule.get_sblock("result"))[-1])
    assert int(last.extent) == lanes


def test_a_function_without_blocks_is_left():
    @T.prim_func(s_tir=True)
    def func(data: T.Buffer((4,), "float32")):
        for i in range(4):
            data[i] = T.float32(0)

    assert all(rule(func, AVX2) is None for rule in RULES)


def test_schedules_keep_the_function_valid():
    for func in (packed_product(), depthwise(), plain_product()):
        schedule = first_rule(func)(func, AVX2)
        s_tir.Schedule(schedule.mod, debug_mask="all")  # verifies all its invariants


def test_a_depthwise_sum_of_rows_is_one_instruction_per_pixel():
    schedule = schedule_window(depthwise_by_rows(), VNNI)
    assert "call_llvm_pure_intrin" in str(schedule.mod)
    s_tir.Schedule(schedule.mod, debug_mask="all")


def test_a_filter_packed_for_another_instruction_set_is_left():
    assert schedule_window(depthwise_by_rows(), AVX2) is None
