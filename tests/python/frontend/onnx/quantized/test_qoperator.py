"""ONNX Runtime's operators on codes, against ONNX Runtime."""

import numpy as np
import pytest
import tvm
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper
from tvm import relax

import tvm_quant
from onnx_models import node
from quantized_models import (
    contractions,
    float_weights,
    integer,
    onnxruntime_unoptimized,
    random_codes,
    random_weights,
    realized,
    typed_model,
)

MS = "com.microsoft"


def microsoft(operator, inputs, output="y", **attributes):
    return helper.make_node(operator, inputs, [output], domain=MS, **attributes)


def is_exact(source, **feeds):
    """Every element is ONNX Runtime's."""
    (expected,) = onnxruntime_unoptimized(source, **feeds)
    (got,) = realized(source, **feeds)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def is_exact_when_compiled(source, **feeds):
    """The same in scheduled kernels; a compiler may contract a product and a sum."""
    mod = integer(source)
    machine = relax.VirtualMachine(tvm_quant.compile(mod, "llvm"), tvm.cpu())
    got = machine["main"](*(tvm.runtime.tensor(feeds[str(p.name)]) for p in mod["main"].params))
    np.testing.assert_array_equal(got.numpy(), onnxruntime_unoptimized(source, **feeds)[0])


def grid(name, scale, zero, kind):
    return {f"{name}s": np.float32(scale), f"{name}z": np.asarray(zero, kind)}


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("group", [1, 3])
def test_convolution(rng, kind, per_channel, group):
    weight = random_weights(rng, (6, 3 // group, 3, 3))
    scale = rng.uniform(0.001, 0.01, 6).astype("float32") if per_channel else np.float32(0.004)
    weights = {
        **grid("x", 0.03, 10, kind),
        "w": weight,
        "ws": scale,
        "wz": np.zeros(scale.shape, "int8"),
        **grid("y", 0.11, 20, kind),
        "b": rng.integers(-9999, 9999, 6).astype("int32"),
    }
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    conv = node("QLinearConv", inputs, pads=[1, 1, 0, 1], strides=[2, 1], group=group)
    source = typed_model([conv], {"x": (kind, (2, 3, 9, 9))}, weights, {"y": kind})
    is_exact(source, x=random_codes(rng, (2, 3, 9, 9), kind))
    mod = integer(source)
    assert str(contractions(mod)[0].ty.dtype) == "int32" and not float_weights(mod)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_column", [False, True])
def test_matrix_product(rng, kind, per_column):
    scale = rng.uniform(0.001, 0.01, 7).astype("float32") if per_column else np.float32(0.004)
    zero = np.zeros(scale.shape, "int8") if per_column else np.int8(3)
    weights = {
        **grid("a", 0.03, 10, kind),
        "b": random_weights(rng, (20, 7)),
        "bs": scale,
        "bz": zero,
        **grid("y", 0.07, 20, kind),
    }
    product = node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    source = typed_model([product], {"a": (kind, (50, 20))}, weights, {"y": kind})
    is_exact(source, a=random_codes(rng, (50, 20), kind))


def test_weights_of_all_eight_bits(rng):
    """Sums that ONNX Runtime saturates where a CPU adds products in 16 bits."""
    a, b = np.full((2, 40), 255, "uint8"), random_codes(rng, (40, 7), "int8")
    b[:, 0], b[:, 1] = 127, -128
    weights = {
        **grid("a", 0.03, 10, "uint8"),
        "b": b,
        "bs": np.float32(0.004),
        "bz": np.int8(0),
        **grid("y", 1.3, 128, "uint8"),
    }
    product = node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    source = typed_model([product], {"a": ("uint8", a.shape)}, weights, {"y": "uint8"})
    sums = (a.astype("int64") - 10) @ b
    expected = np.clip(np.rint(sums * (0.03 * 0.004 / 1.3)) + 128, 0, 255)
    np.testing.assert_array_equal(realized(source, a=a)[0], expected)


def test_product_of_two_tensors_of_the_network(rng):
    weights = {
        **grid("a", 0.03, 10, "uint8"),
        **grid("b", 0.02, 100, "uint8"),
        **grid("y", 0.5, 20, "uint8"),
    }
    product = node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    inputs = {"a": ("uint8", (5, 20)), "b": ("uint8", (20, 6))}
    source = typed_model([product], inputs, weights, {"y": "uint8"})
    is_exact(source, a=random_codes(rng, (5, 20), "uint8"), b=random_codes(rng, (20, 6), "uint8"))


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_gemm(rng, turned, alpha):
    shape = (7, 20) if turned else (20, 7)
    weights = {
        **grid("a", 0.03, 10, "uint8"),
        "b": random_weights(rng, shape),
        "bs": rng.uniform(0.001, 0.01, 7).astype("float32"),
        "bz": np.zeros(7, "int8"),
        "c": rng.integers(-9999, 9999, 7).astype("int32"),
        **grid("y", 0.07, 20, "uint8"),
    }
    inputs = ["a", "as", "az", "b", "bs", "bz", "c", "ys", "yz"]
    gemm = microsoft("QGemm", inputs, transB=turned, alpha=alpha)
    source = typed_model([gemm], {"a": ("uint8", (50, 20))}, weights, {"y": "uint8"})
    is_exact(source, a=random_codes(rng, (50, 20), "uint8"))


def test_alpha_is_part_of_the_first_scale(rng):
    """Each product of scales is rounded: at 0.002 a step, sums on ties tell in which order."""
    weights = {
        **grid("a", 0.024, 10, "uint8"),
        "b": random_weights(rng, (20, 7)),
        **grid("b", 0.005, 0, "int8"),
        **grid("y", 0.042, 120, "uint8"),
    }
    inputs = ["a", "as", "az", "b", "bs", "bz", "", "ys", "yz"]
    gemm = microsoft("QGemm", inputs, alpha=0.7)
    source = typed_model([gemm], {"a": ("uint8", (2000, 20))}, weights, {"y": "uint8"})
    is_exact(source, a=random_codes(rng, (2000, 20), "uint8"))


def every_pair(kind):
    limits = np.iinfo(kind)
    return np.mgrid[limits.min : limits.max + 1, limits.min : limits.max + 1].astype(kind)


def two_operands(operator, kind, scales, zeros, shapes, constants=()):
    """A model; zero points count from the smallest code."""
    lowest = np.iinfo(kind).min
    weights = dict(constants)
    for name, scale, zero in zip("aby", scales, zeros, strict=True):
        weights |= grid(name, scale, zero + lowest, kind)
    call = microsoft(operator, ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    inputs = {name: (kind, shape) for name, shape in shapes.items()}
    return typed_model([call], inputs, weights, {"y": kind})


BYTE = st.integers(0, 255)
ROUND = st.integers(10, 60).map(lambda thousandths: thousandths / 1000)

#: Scales and zero points with which one sum of 16 depends on which operand is added first.
ORDERED = ((0.021, 0.042, 0.03), (67, 162, 206))

#: Those with which a product in one operation with the zero point would have other codes.
CONTRACTED = ((0.045, 0.03, 0.081), (37, 154, 171))


@pytest.mark.isa("avx2")
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@settings(max_examples=8)
@example(*ORDERED)
@example((0.02, 0.01, 0.012), (209, 102, 219))
@example(*CONTRACTED)
@given(st.tuples(ROUND, ROUND, ROUND), st.tuples(BYTE, BYTE, BYTE))
def test_every_pair_of_codes(operator, kind, scales, zeros):
    """Quotients of round scales put real values on ties, which float32 decides by its errors."""
    a, b = every_pair(kind)
    is_exact(two_operands(operator, kind, scales, zeros, {"a": a.shape, "b": b.shape}), a=a, b=b)


@pytest.mark.isa("avx2")
@pytest.mark.parametrize(
    ("operator", "parameters"), [("QLinearAdd", ORDERED), ("QLinearMul", CONTRACTED)]
)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_every_pair_of_codes_in_compiled_kernels(operator, parameters, kind):
    a, b = every_pair(kind)
    source = two_operands(operator, kind, *parameters, {"a": a.shape, "b": b.shape})
    is_exact_when_compiled(source, a=a, b=b)


def some_codes(rng, shape, single):
    """Of a tensor of one element, the code `single`."""
    return random_codes(rng, shape, "uint8") if np.prod(shape) > 1 else np.full(shape, single, "u1")


@pytest.mark.isa("avx2")
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((), ()),
        ((1,), (1,)),
        ((1,), (500,)),
        ((500,), (1,)),
        ((), (500,)),
        ((500,), ()),
        ((500, 1), ()),
        ((500, 1), (1,)),
        ((500, 1), (1, 1)),
        ((1,), (500, 1)),
        ((50, 1), (1, 50)),
        ((1, 50), (50, 1)),
        ((2, 50, 3, 3), (1, 50, 1, 1)),
        ((1, 50, 1, 1), (2, 50, 3, 3)),
        ((50, 1, 1), (2, 1, 3, 1)),
        ((50,), (30, 50)),
        ((2, 1, 50), (30, 1)),
    ],
)
def test_a_sum_adds_what_is_constant_along_rows_first(rng, left, right):
    a, b = some_codes(rng, left, 0), some_codes(rng, right, 53)
    shapes = {"a": left, "b": right}
    is_exact(two_operands("QLinearAdd", "uint8", *ORDERED, shapes), a=a, b=b)


@pytest.mark.isa("avx2")
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("known", ["a", "b"])
@pytest.mark.parametrize("shape", [(), (1, 50, 1, 1), (2, 50, 3, 3)])
def test_one_operand_is_a_constant(rng, operator, known, shape):
    (name,) = set("ab") - {known}
    constants = {known: some_codes(rng, shape, 53)}
    source = two_operands(operator, "uint8", *ORDERED, {name: (2, 50, 3, 3)}, constants)
    is_exact(source, **{name: random_codes(rng, (2, 50, 3, 3), "uint8")})


@pytest.mark.isa("avx2")
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_a_tensor_with_itself(operator):
    weights = {**grid("x", 0.021, 67, "uint8"), **grid("y", 0.03, 206, "uint8")}
    call = microsoft(operator, ["x", "xs", "xz", "x", "xs", "xz", "ys", "yz"])
    source = typed_model([call], {"x": ("uint8", (256,))}, weights, {"y": "uint8"})
    is_exact(source, x=np.arange(256).astype("uint8"))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("operator", "scale", "zero", "attributes"),
    [
        ("QLinearSigmoid", 1 / 256, 0, {}),
        ("QLinearLeakyRelu", 0.05, 30, {"alpha": 0.1}),
        ("QLinearSoftmax", 1 / 256, 0, {"axis": -1, "opset": 13}),
    ],
)
def test_functions(rng, operator, scale, zero, attributes, kind):
    zero = zero - (128 if kind == "int8" and zero == 0 else 0)
    weights = {**grid("x", 0.05, 3, kind), **grid("y", scale, zero, kind)}
    call = microsoft(operator, ["x", "xs", "xz", "ys", "yz"], **attributes)
    source = typed_model([call], {"x": (kind, (256, 8))}, weights, {"y": kind})
    x = np.arange(256).astype(kind)[:, None].repeat(8, 1) if "Soft" not in operator else None
    is_exact(source, x=random_codes(rng, (256, 8), kind) if x is None else x)


def one_operand(operator, kind, scales, zeros, shape, **attributes):
    """A model; zero points count from the smallest code."""
    lowest = np.iinfo(kind).min
    weights = {}
    for name, scale, zero in zip("xy", scales, zeros, strict=True):
        weights |= grid(name, scale, zero + lowest, kind)
    call = microsoft(operator, ["x", "xs", "xz", "ys", "yz"], **attributes)
    return typed_model([call], {"x": (kind, shape)}, weights, {"y": kind})


SIZE = st.integers(1, 8)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("last", [0, 1])
@settings(max_examples=8)
@example((0.021, 0.002), (164, 72), (6, 1), 0)
@example((0.02, 0.022), (126, 116), (4, 3), 0)
@given(st.tuples(ROUND, ROUND), st.tuples(BYTE, BYTE), st.tuples(SIZE, SIZE), st.integers(0, 99))
def test_global_average_pool(kind, last, scales, zeros, size, seed):
    """A count is part of the multiplier, which ties of round scales tell from a divisor."""
    shape = (30, *size, 32) if last else (30, 32, *size)
    operator = "QLinearGlobalAveragePool"
    source = one_operand(operator, kind, scales, zeros, shape, channels_last=last)
    is_exact(source, x=random_codes(np.random.default_rng(seed), shape, kind))


@st.composite
def windows(draw):
    pair = st.tuples(st.integers(1, 4), st.integers(1, 4))
    kernel = draw(pair)
    pads = [draw(st.integers(0, extent - 1)) for extent in kernel * 2]
    counted = draw(st.integers(0, 1))
    return {
        "kernel_shape": kernel,
        "strides": draw(pair),
        "pads": pads,
        "count_include_pad": counted,
    }


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("last", [0, 1])
@settings(max_examples=8)
@example((0.01, 0.013), (194, 97), {"kernel_shape": [2, 2], "strides": [1, 2]}, 0)
@example((0.015, 0.018), (222, 169), {"kernel_shape": [2, 3], "strides": [2, 2]}, 0)
@given(st.tuples(ROUND, ROUND), st.tuples(BYTE, BYTE), windows(), st.integers(0, 99))
def test_average_pool(kind, last, scales, zeros, window, seed):
    """ONNX Runtime averages the real numbers in float32, row by row."""
    shape = (2, 15, 14, 8) if last else (2, 8, 15, 14)
    source = one_operand(
        "QLinearAveragePool", kind, scales, zeros, shape, channels_last=last, **window
    )
    x = random_codes(np.random.default_rng(seed), shape, kind)
    is_exact(source, x=x)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((9,), {}),
        ((3, 4, 2), {}),
        ((7, 5), {}),
        ((7, 5), {"auto_pad": "SAME_UPPER", "strides": [7, 5]}),
        ((7, 5), {"pads": [1, 1, 1, 1], "strides": [9, 9]}),
    ],
)
def test_windows_as_large_as_the_data(rng, last, size, window):
    """Without padding that is a global pool, which sums codes."""
    grids = (0.02, 0.022), (126, 116)
    shape = (30, *size, 64) if last else (30, 64, *size)
    window = {"kernel_shape": size, "channels_last": last, **window}
    source = one_operand("QLinearAveragePool", "uint8", *grids, shape, **window)
    is_exact(source, x=random_codes(rng, shape, "uint8"))


@pytest.mark.parametrize("last", [0, 1])
def test_average_pool_in_compiled_kernels(rng, last):
    shape = (2, 25, 24, 8) if last else (2, 8, 25, 24)
    window = {"kernel_shape": [2, 2], "strides": [1, 2], "channels_last": last}
    source = one_operand("QLinearAveragePool", "uint8", (0.01, 0.013), (194, 97), shape, **window)
    is_exact_when_compiled(source, x=random_codes(rng, shape, "uint8"))


def test_concat(rng):
    weights = {
        **grid("y", 0.04, 20, "uint8"),
        **grid("a", 0.04, 20, "uint8"),
        **grid("b", 0.03, 9, "uint8"),
    }
    call = microsoft("QLinearConcat", ["ys", "yz", "a", "as", "az", "b", "bs", "bz"], axis=1)
    inputs = {"a": ("uint8", (2, 100)), "b": ("uint8", (2, 256))}
    source = typed_model([call], inputs, weights, {"y": "uint8"})
    every = np.arange(256).astype("uint8")[None].repeat(2, 0)
    is_exact(source, a=random_codes(rng, (2, 100), "uint8"), b=every)
