"""LowerContractions: what is lowered, with which constants, and what is left."""

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from plain_tvm import build
from tvm_quant.backend.cpu.isa import ISAS
from tvm_quant.backend.cpu.lower import LowerContractions
from tvm_quant.backend.cpu.pack import pack_dense
from tvm_quant.ir import bindings, constant, constant_value, op_name

R = relax.op
AVX2 = next(isa for isa in ISAS if isa.name == "avx2")
NEON = next(isa for isa in ISAS if isa.name == "neon")
VNNI = next(isa for isa in ISAS if isa.name == "avx512vnni")
LAST = {"data_layout": "NHWC", "out_layout": "NHWC"}


def lowered(body, isa=AVX2, **inputs):
    mod = LowerContractions(isa)(build(body, **inputs))
    calls = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    return mod, calls


def kernels(mod):
    return [func for _, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)]


def test_the_weight_is_packed_at_compile_time():
    weight = np.random.default_rng(0).normal(size=(12, 3, 3, 3)).astype("float32")
    _, (call,) = lowered(lambda _b, x: R.nn.conv2d(x, constant(weight), **LAST), x=(1, 8, 8, 3))
    assert op_name(call) == "relax.call_tir"
    packed = pack_dense(weight.transpose(0, 2, 3, 1), lanes=8)
    np.testing.assert_array_equal(constant_value(call.args[1].fields[1]), packed)


@pytest.mark.parametrize(("isa", "group"), [(NEON, 1), (AVX2, 2), (VNNI, 4)])
def test_eight_bit_weights_are_grouped_as_the_target_multiplies_them(isa, group):
    weight = np.random.default_rng(0).integers(-128, 128, (16, 5, 1, 1)).astype("int8")

    def body(_b, x):
        return R.nn.conv2d(x, constant(weight), out_dtype="int32", **LAST)

    _, (call,) = lowered(body, isa, x=("uint8", 1, 4, 4, 5))
    packed = pack_dense(weight.transpose(0, 2, 3, 1), lanes=isa.lanes, group=group)
    np.testing.assert_array_equal(constant_value(call.args[1].fields[1]), packed)


@pytest.mark.parametrize(
    ("channels", "kernel", "attrs", "shape"),
    [
        (3, (3, 3), {}, (1, 3, 3, 16, 4)),
        (3, (7, 7), {}, (1, 7, 6, 16, 4)),
        (1, (5, 5), {}, (1, 5, 2, 16, 4)),
        (1, (5, 1), {}, (1, 5, 1, 1, 16)),
        (4, (3, 3), {}, (1, 3, 3, 1, 16, 4)),
        (3, (3, 1), {}, (1, 3, 1, 1, 16, 4)),
        (3, (3, 3), {"dilation": 2}, (1, 3, 3, 1, 16, 4)),
    ],
)
def test_few_channels_are_grouped_with_the_pixels_beside_them(channels, kernel, attrs, shape):
    weight = constant(np.ones((16, channels, *kernel), "int8"))

    def body(_b, x):
        return R.nn.conv2d(x, weight, out_dtype="int32", **attrs, **LAST)

    _, (call,) = lowered(body, VNNI, x=("uint8", 1, 9, 9, channels))
    assert constant_value(call.args[1].fields[1]).shape == shape


@pytest.mark.parametrize(
    ("isa", "channels", "attrs", "shape"),
    [
        (VNNI, 32, {}, (1, 3, 2, 16, 4)),
        (AVX2, 32, {}, (3, 3, 32)),
        (VNNI, 24, {}, (3, 3, 24)),
        (VNNI, 32, {"dilation": (2, 1)}, (3, 3, 32)),
    ],
    ids=["four rows at once", "no instruction", "no whole vectors", "rows that are no neighbours"],
)
def test_depthwise_weights_are_packed_by_rows_where_that_can_be(isa, channels, attrs, shape):
    weight = constant(np.ones((channels, 1, 3, 3), "int8"))

    def body(_b, x):
        return R.nn.conv2d(x, weight, groups=channels, out_dtype="int32", **attrs, **LAST)

    _, (call,) = lowered(body, isa, x=("uint8", 1, 9, 9, channels))
    assert constant_value(call.args[1].fields[1]).shape == shape


def test_equal_layers_share_a_kernel():
    weights = np.random.default_rng(0).normal(size=(2, 8, 8, 3, 3)).astype("float32")

    def body(b, x):
        for weight in weights:
            x = b.emit(R.nn.conv2d(x, constant(weight), padding=1, **LAST))
        return x

    mod, calls = lowered(body, x=(1, 6, 6, 8))
    assert len(calls) == 2 and len(kernels(mod)) == 1


def test_a_pad_in_front_becomes_part_of_the_kernel():
    weight = constant(np.ones((8, 4, 3, 3), "int8"))

    def body(b, x):
        y = b.emit(R.nn.pad(x, [0, 0, 1, 1, 2, 0, 0, 0], "constant", 7.0))
        return R.nn.conv2d(y, weight, out_dtype="int32", **LAST)

    _, (call,) = lowered(body, x=("uint8", 1, 6, 6, 4))
    assert op_name(call) == "relax.call_tir"
    assert isinstance(call.args[1].fields[0], relax.Var)


@pytest.mark.parametrize(
    "pad",
    [
        {"pad_width": [0, 0, 1, 1, 1, 1, 0, 2]},
        {"pad_width": [0, 0, 1, 1, 1, 1, 0, 0], "pad_mode": "reflect"},
    ],
    ids=["of channels", "by reflection"],
)
def test_other_pads_stay(pad):
    def body(b, x):
        y = b.emit(R.nn.pad(x, **pad))
        weight = constant(np.ones((8, int(y.ty.shape.values[-1]), 3, 3), "float32"))
        return R.nn.conv2d(y, weight, **LAST)

    _, calls = lowered(body, x=(1, 6, 6, 4))
    assert [op_name(call) for call in calls] == ["relax.nn.pad", "relax.call_tir"]


@pytest.mark.parametrize(
    "body",
    [
        lambda _b, x: R.nn.conv2d(x, constant(np.ones((2, 4, 1, 1), "float32"))),
        lambda _b, x: R.matmul(x, x),
        lambda _b, x: R.nn.relu(x),
    ],
    ids=["channels first", "two inputs", "no contraction"],
)
def test_what_it_does_not_know_stays(body):
    mod = build(body, x=(1, 4, 4, 4))
    tvm.ir.assert_structural_equal(LowerContractions(AVX2)(mod), mod)
