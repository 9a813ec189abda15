"""The pass as a whole: IR before and after for each role, and what it keeps."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from plain_tvm import build, run, run_one
from realized import S8, U8, Grid, dtypes, normal, realize, weight_grid
from tvm_quant.errors import IRContractError
from tvm_quant.ir import NODE_NAMES, node_name, with_node_names
from tvm_quant.op import Kind, QuantSpec, RequantizeMode, requantize, simulated_quantize
from tvm_quant.transform.realize import Realize

OP = relax.op
ROWS = QuantSpec(narrow=True, axis=0)
COLUMNS = QuantSpec(narrow=True, axis=1)
# Two output channels with steps 0.25 and 0.5: codes 4, -8 and 127, 1.
W = np.array([[[[1.0]], [[-2.0]]], [[[63.5]], [[0.5]]]], "float32")
W_SCALE = np.array([0.25, 0.5], "float32").reshape(2, 1, 1, 1)
W_CODES = relax.const(np.array([[[[4]], [[-8]]], [[[127]], [[1]]]], "int8"))
V = np.array([[1.0, 63.5], [-2.0, 0.5]], "float32")
V_SCALE = np.array([[0.25, 0.5]], "float32")
V_CODES = relax.const(np.array([[4, 127], [-8, 1]], "int8"))


def const(value, dtype="float32"):
    return relax.const(np.asarray(value, dtype), dtype)


def quantize(x, scale, zero_point, spec=U8):
    return simulated_quantize(x, scale, zero_point, spec=spec, kind=Kind.ACTIVATION)


def realized(mod, mode=RequantizeMode.FLOAT):
    """The realized module without names, which have tests of their own."""
    result = Realize(mode)(mod)
    result["main"] = result["main"].without_attr(NODE_NAMES)
    return result


def test_contraction():
    """Bias and zero point are one constant; relu is the lower bound of the codes."""
    bias = const(np.array([1.0, -3.0]).reshape(1, 2, 1, 1))

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 3, 3), "float32")) -> R.Tensor((1, 2, 3, 3), "float32"):
            with R.dataflow():
                x_q = quantize(x, 0.5, 10)
                w_q = quantize(const(W), W_SCALE, 0, ROWS)
                conv = R.nn.conv2d(x_q, w_q)
                moved = R.add(conv, bias)
                relu = R.nn.relu(moved)
                relu_q = quantize(relu, 2.0, 7)
                out = relu_q
                R.output(out)
            return out

    # bias / (0.5 * step) = 8, -12; zero point: -10 * (4 - 8), -10 * (127 + 1)
    offset = const(np.array([8 + 40, -12 - 1280]).reshape(1, 2, 1, 1), "int32")
    multiplier = np.array([0.0625, 0.125]).reshape(1, 2, 1, 1)

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((1, 2, 3, 3), "float32")) -> R.Tensor((1, 2, 3, 3), "float32"):
            with R.dataflow():
                x_s = R.round(R.divide(x, const(0.5)))
                x_z = R.clip(R.add(x_s, const(10.0)), 0.0, 255.0)
                x_q = R.astype(x_z, "uint8")
                conv = R.nn.conv2d(x_q, W_CODES, out_dtype="int32")
                summed = R.add(conv, offset)
                relu_q = requantize(summed, multiplier, 7, dtype="uint8", qmin=7, qmax=255)
                steps = R.subtract(R.astype(relu_q, "float32"), const(7.0))
                real = R.multiply(steps, const(2.0))
                out = real
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(realized(Before), After)


def test_padding_is_done_with_the_zero_point():
    offset = const(np.array([40, -1280]).reshape(1, 2, 1, 1), "int32")
    multiplier = np.array([0.125, 0.25]).reshape(1, 2, 1, 1)

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 3, 3), "float32")) -> R.Tensor((1, 2, 5, 6), "float32"):
            with R.dataflow():
                x_q = quantize(x, 0.5, 10)
                w_q = quantize(const(W), W_SCALE, 0, ROWS)
                conv = R.nn.conv2d(x_q, w_q, padding=[1, 2, 1, 1])
                conv_q = quantize(conv, 1.0, 0, S8)
                out = conv_q
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((1, 2, 3, 3), "float32")) -> R.Tensor((1, 2, 5, 6), "float32"):
            with R.dataflow():
                x_s = R.round(R.divide(x, const(0.5)))
                x_z = R.clip(R.add(x_s, const(10.0)), 0.0, 255.0)
                x_q = R.astype(x_z, "uint8")
                padded = R.nn.pad(x_q, [0, 0, 0, 0, 1, 1, 2, 1], "constant", 10.0)
                conv = R.nn.conv2d(padded, W_CODES, padding=[0, 0, 0, 0], out_dtype="int32")
                summed = R.add(conv, offset)
                conv_q = requantize(summed, multiplier, 0, dtype="int8", qmin=-127, qmax=127)
                real = R.multiply(R.astype(conv_q, "float32"), const(1.0))
                out = real
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(realized(Before), After)


def test_a_symmetric_grid_needs_neither_padding_nor_offset():
    multiplier = np.array([0.125, 0.25]).reshape(1, 2, 1, 1)

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 3, 3), "float32")) -> R.Tensor((1, 2, 5, 5), "float32"):
            with R.dataflow():
                x_q = quantize(x, 0.5, 0, S8)
                w_q = quantize(const(W), W_SCALE, 0, ROWS)
                conv = R.nn.conv2d(x_q, w_q, padding=1)
                conv_q = quantize(conv, 1.0, 0, S8)
                out = conv_q
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((1, 2, 3, 3), "float32")) -> R.Tensor((1, 2, 5, 5), "float32"):
            with R.dataflow():
                x_s = R.clip(R.round(R.divide(x, const(0.5))), -127.0, 127.0)
                x_q = R.astype(x_s, "int8")
                conv = R.nn.conv2d(x_q, W_CODES, padding=1, out_dtype="int32")
                conv_q = requantize(
                    conv,
                    multiplier,
                    0,
                    dtype="int8",
                    qmin=-127,
                    qmax=127,
                    mode=RequantizeMode.SHIFT,
                )
                real = R.multiply(R.astype(conv_q, "float32"), const(1.0))
                out = real
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(realized(Before, RequantizeMode.SHIFT), After)


def test_sum_of_an_accumulator_and_codes():
    """y comes to the scale of the accumulator, 0.25: 8 * y, with 18 bits below the point.

    The sum of at most 127 * 128 + 255 * 8.5 + 1 < 2**15 keeps 15 of them.
    """

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), y: R.Tensor((2, 2), "float32")) -> R.Tensor(
            (2, 2), "float32"
        ):
            with R.dataflow():
                x_q = quantize(x, 0.5, 0, S8)
                v_q = quantize(const(V), 0.5, 0, S8)
                product = R.matmul(x_q, v_q)
                y_q = quantize(y, 2.0, 100)
                total = R.add(product, y_q)
                total_q = quantize(total, 1.0, 0, S8)
                out = total_q
                R.output(out)
            return out

    codes = relax.const(np.array([[2, 127], [-4, 1]], "int8"))

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), y: R.Tensor((2, 2), "float32")) -> R.Tensor(
            (2, 2), "float32"
        ):
            with R.dataflow():
                x_s = R.clip(R.round(R.divide(x, const(0.5))), -127.0, 127.0)
                x_q = R.astype(x_s, "int8")
                product = R.matmul(x_q, codes, out_dtype="int32")
                y_s = R.round(R.divide(y, const(2.0)))
                y_z = R.clip(R.add(y_s, const(100.0)), 0.0, 255.0)
                y_q = R.astype(y_z, "uint8")
                fine = R.left_shift(product, const(15, "int32"))
                scaled = R.multiply(R.astype(y_q, "int32"), const(8 << 18, "int32"))
                nudged = R.add(scaled, const((1 << 2) - 100 * (8 << 18), "int32"))
                term = R.right_shift(nudged, const(3, "int32"))
                total = R.add(fine, term)
                total_q = requantize(total, 0.25 / 2**15, 0, dtype="int8", qmin=-127, qmax=127)
                real = R.multiply(R.astype(total_q, "float32"), const(1.0))
                out = real
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(realized(Before), After)


def test_sum_of_codes():
    """Both come to the scale 2 / 2**22: x by 2**21, y by 2**22."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), y: R.Tensor((2, 2), "float32")) -> R.Tensor(
            (2, 2), "float32"
        ):
            with R.dataflow():
                x_q = quantize(x, 1.0, 0, S8)
                y_q = quantize(y, 2.0, 0, S8)
                total = R.subtract(x_q, y_q)
                total_q = quantize(total, 1.0, 0, S8)
                out = total_q
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), y: R.Tensor((2, 2), "float32")) -> R.Tensor(
            (2, 2), "float32"
        ):
            with R.dataflow():
                x_s = R.clip(R.round(R.divide(x, const(1.0))), -127.0, 127.0)
                x_q = R.astype(x_s, "int8")
                y_s = R.clip(R.round(R.divide(y, const(2.0))), -127.0, 127.0)
                y_q = R.astype(y_s, "int8")
                left = R.astype(x_q, "int32")
                right = R.astype(y_q, "int32")
                first = R.multiply(left, const(1 << 21, "int32"))
                second = R.multiply(right, const(-(1 << 22), "int32"))
                total = R.add(first, second)
                total_q = requantize(total, 2.0**-21, 0, dtype="int8", qmin=-127, qmax=127)
                real = R.multiply(R.astype(total_q, "float32"), const(1.0))
                out = real
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(realized(Before), After)


def test_product():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), y: R.Tensor((2, 2), "float32")) -> R.Tensor(
            (2, 2), "float32"
        ):
            with R.dataflow():
                x_q = quantize(x, 0.5, 0, S8)
                y_q = quantize(y, 0.5, 100)
                product = R.multiply(x_q, y_q)
                product_q = quantize(product, 1.0, 0, S8)
                out = product_q
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), y: R.Tensor((2, 2), "float32")) -> R.Tensor(
            (2, 2), "float32"
        ):
            with R.dataflow():
                x_s = R.clip(R.round(R.divide(x, const(0.5))), -127.0, 127.0)
                x_q = R.astype(x_s, "int8")
                y_s = R.round(R.divide(y, const(0.5)))
                y_z = R.clip(R.add(y_s, const(100.0)), 0.0, 255.0)
                y_q = R.astype(y_z, "uint8")
                left = R.astype(x_q, "int32")
                right = R.subtract(R.astype(y_q, "int32"), const(100, "int32"))
                product = R.multiply(left, right)
                product_q = requantize(product, 0.25, 0, dtype="int8", qmin=-127, qmax=127)
                real = R.multiply(R.astype(product_q, "float32"), const(1.0))
                out = real
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(realized(Before), After)


def test_mean():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                x_q = quantize(x, 0.5, 10)
                mean = R.mean(x_q, axis=[1])
                mean_q = quantize(mean, 0.25, 0, S8)
                out = mean_q
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                x_s = R.round(R.divide(x, const(0.5)))
                x_z = R.clip(R.add(x_s, const(10.0)), 0.0, 255.0)
                x_q = R.astype(x_z, "uint8")
                mean = R.sum(R.astype(x_q, "int32"), axis=[1])
                summed = R.add(mean, const(-80, "int32"))
                mean_q = requantize(summed, 0.25, 0, dtype="int8", qmin=-127, qmax=127)
                real = R.multiply(R.astype(mean_q, "float32"), const(0.25))
                out = real
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(realized(Before), After)


def test_moves_joins_and_clamps():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 2, 4, 4), "float32"), y: R.Tensor((1, 2, 2, 2), "float32")
        ) -> R.Tensor((1, 4, 2, 2), "float32"):
            with R.dataflow():
                x_q = quantize(x, 0.5, 10)
                pool = R.nn.max_pool2d(x_q, (2, 2), (2, 2))
                y_q = quantize(y, 0.5, 10)
                both = R.concat((pool, y_q), axis=1)
                clip = R.clip(both, -1, 6)
                clip_q = quantize(clip, 0.25, 4)
                out = clip_q
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(
            x: R.Tensor((1, 2, 4, 4), "float32"), y: R.Tensor((1, 2, 2, 2), "float32")
        ) -> R.Tensor((1, 4, 2, 2), "float32"):
            with R.dataflow():
                x_s = R.round(R.divide(x, const(0.5)))
                x_z = R.clip(R.add(x_s, const(10.0)), 0.0, 255.0)
                x_q = R.astype(x_z, "uint8")
                pool = R.nn.max_pool2d(x_q, (2, 2), (2, 2))
                y_s = R.round(R.divide(y, const(0.5)))
                y_z = R.clip(R.add(y_s, const(10.0)), 0.0, 255.0)
                y_q = R.astype(y_z, "uint8")
                both = R.concat((pool, y_q), axis=1)
                wide = R.astype(both, "int32")
                summed = R.add(wide, const(-10, "int32"))
                clip_q = requantize(summed, 2.0, 4, dtype="uint8", qmin=0, qmax=28)
                real = R.multiply(R.subtract(R.astype(clip_q, "float32"), const(4.0)), const(0.25))
                out = real
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(realized(Before), After)


def test_pointwise_functions_are_tables():
    four_bits = QuantSpec(bits=4, narrow=True)
    values = np.square(np.arange(-7, 8) * 0.5)
    table = const(np.clip(np.round(values / 0.125), 0, 255), "uint8")

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2, 8), "float32"):
            with R.dataflow():
                x_q = quantize(x, 0.5, 0, four_bits)
                square = R.square(x_q)
                square_q = quantize(square, 0.125, 0)
                out = square_q
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2, 8), "float32"):
            with R.dataflow():
                x_s = R.clip(R.round(R.divide(x, const(0.5))), -7.0, 7.0)
                x_q = R.astype(x_s, "int8")
                index = R.subtract(R.astype(x_q, "int32"), const(-7, "int32"))
                looked_up = R.take(table, index, axis=0, mode="clip")
                square_q = looked_up
                real = R.multiply(R.astype(square_q, "float32"), const(0.125))
                out = real
                R.output(out)
            return out

    x = normal(2, 8, scale=3)
    np.testing.assert_array_equal(run_one(realized(Before), x), run_one(Before, x))
    np.testing.assert_array_equal(run_one(After, x), run_one(Before, x))


# Whole networks ----------------------------------------------------------------------------------

SHAPE = (1, 2, 5, 5)
GRID, OUT = Grid(0.03, 117), Grid(0.05, 101)
KERNEL_WEIGHT = normal(2, 2, 3, 3, scale=0.4, seed=1)
KERNEL = weight_grid(KERNEL_WEIGHT, 0)


def conv(bb, x, name="conv"):
    kernel = KERNEL.quantize(bb, relax.const(KERNEL_WEIGHT))
    return bb.emit(OP.nn.conv2d(x, kernel, padding=1), name)


def check(body, *data, rtol=1e-5, atol=1e-5, **shapes):
    """Realized and simulated results agree; returns the realized module."""
    simulated = build(body, **shapes)
    mod = Realize()(simulated)
    relax.analysis.well_formed(mod)
    for result, expected in zip(run(mod, *data), run(simulated, *data), strict=True):
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)
    return mod


def test_an_output_that_is_quantized_too_is_the_value_before_quantization():
    def body(bb, x):
        first = conv(bb, GRID.quantize(bb, x))
        return first, conv(bb, OUT.quantize(bb, first), "second")

    mod = check(body, normal(*SHAPE), x=SHAPE)
    first = run(mod, normal(*SHAPE))[0]
    assert len(np.unique(np.round(first / 0.05, 4) % 1)) > 10  # no grid of 0.05


def test_a_tensor_may_be_read_with_two_grids():
    coarse = Grid(0.5, 3, QuantSpec(bits=4, signed=False, symmetric=False))

    def body(bb, x):
        first = conv(bb, GRID.quantize(bb, x))
        return conv(bb, OUT.quantize(bb, first), "fine"), conv(
            bb, coarse.quantize(bb, first), "rough"
        )

    mod = check(body, normal(*SHAPE), x=SHAPE)
    assert {dtypes(mod)["fine"], dtypes(mod)["rough"]} == {"int32"}


def test_quantizing_twice_on_one_grid_is_quantizing_once():
    def body(bb, x):
        return conv(bb, GRID.quantize(bb, GRID.quantize(bb, x)))

    once = realize(lambda bb, x: conv(bb, GRID.quantize(bb, x)), x=SHAPE)
    twice = realize(body, x=SHAPE)
    x = normal(*SHAPE)
    np.testing.assert_array_equal(run_one(once, x), run_one(twice, x))
    assert len(dtypes(twice)) == len(dtypes(once))


def test_results_may_be_tuples_of_tuples():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = conv(builder, GRID.quantize(builder, x))
            inner = builder.emit(relax.Tuple([first, x]), "inner")
            gate = builder.emit(OP.sigmoid(GRID.quantize(builder, x)), "gate")
            out = builder.emit_output(relax.Tuple([inner, gate]), "out")
        builder.emit_func_output(out)
    mod = Realize()(builder.get())
    tvm.ir.assert_structural_equal(mod["main"].ret_ty, builder.get()["main"].ret_ty)


def test_an_input_may_be_returned():
    mod = realize(lambda bb, x: (x, conv(bb, GRID.quantize(bb, x))), x=SHAPE)
    x = normal(*SHAPE)
    np.testing.assert_array_equal(run(mod, x)[0], x)


def test_float_operators_between_read_real_values():
    def body(bb, x):
        first = conv(bb, GRID.quantize(bb, x))
        soft = bb.emit(OP.nn.softmax(first, axis=1), "soft")
        halves = bb.emit(OP.split(soft, 2, axis=1), "halves")
        both = bb.emit(OP.concat([halves[1], halves[0]], axis=1), "both")
        return conv(bb, Grid(1 / 255).quantize(bb, both), "second")

    mod = check(body, normal(*SHAPE), atol=0.02, x=SHAPE)
    types = dtypes(mod)
    assert (types["conv"], types["soft"], types["second"]) == ("int32", "float32", "int32")


def test_a_dynamic_batch_stays_dynamic():
    batch = tvm.tirx.Var("n", "int64")

    def body(bb, x):
        return OUT.quantize(bb, conv(bb, GRID.quantize(bb, x)))

    mod = Realize()(build(body, x=(batch, *SHAPE[1:])))
    x = normal(3, *SHAPE[1:])
    single = Realize()(build(body, x=SHAPE))
    expected = np.concatenate([run_one(single, sample[None]) for sample in x])
    np.testing.assert_array_equal(run_one(mod, x), expected)


def test_branches_stay_in_float_and_read_real_values():
    w = relax.const(KERNEL_WEIGHT)
    k = (KERNEL.scale, KERNEL.zero_point, KERNEL.spec)

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 5, 5), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (1, 2, 5, 5), "float32"
        ):
            with R.dataflow():
                x_q = quantize(x, 0.03, 117)
                w_q = quantize(w, *k)
                y = R.nn.conv2d(x_q, w_q, padding=1)
                R.output(y)
            if c:
                t = R.nn.conv2d(y, w, padding=1)
                b = R.add(t, x)
            else:
                f = R.nn.relu(y)
                b = f
            with R.dataflow():
                b_q = quantize(b, 0.05, 101)
                v_q = quantize(w, *k)
                z = R.nn.conv2d(b_q, v_q, padding=1)
                R.output(z)
            return z

    mod = Realize()(Before)
    relax.analysis.well_formed(mod)
    types = dtypes(mod)
    assert (types["y"], types["z"]) == ("int32", "int32")
    x = normal(*SHAPE)
    for condition in (True, False):
        inputs = (x, np.array(condition))
        np.testing.assert_allclose(run_one(mod, *inputs), run_one(Before, *inputs), atol=0.05)
        difference = run_one(mod, *inputs) - run_one(Before, *inputs)
        assert np.abs(difference).mean() < 1e-3


def test_match_casts_are_kept():
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")

    def body(bb, x):
        cast = bb.match_cast(GRID.quantize(bb, x), relax.TensorType((m, 4), "float32"))
        return bb.emit(OP.nn.relu(cast), "relu")

    mod = check(body, normal(3, 4), x=(n, 4))
    x = normal(5, 4)
    np.testing.assert_array_equal(run_one(mod, x), run_one(build(body, x=(n, 4)), x))


def test_names_lead_from_integers_to_the_nodes_of_the_model_file():
    def body(bb, x):
        return OUT.quantize(bb, conv(bb, GRID.quantize(bb, x)), name="conv_q")

    mod = build(body, x=SHAPE)
    mod["main"] = with_node_names(mod["main"], {"conv": "layer1/conv"})
    func = Realize()(mod)["main"]
    assert node_name(func, "conv") == "layer1/conv"
    assert node_name(func, "conv_pad") == "layer1/conv"


def test_attributes_of_module_and_function_and_other_functions_are_kept():
    mod = build(lambda bb, x: conv(bb, GRID.quantize(bb, x)), x=SHAPE)
    mod["main"] = mod["main"].with_attr("num_input", 1)
    mod = mod.with_attr("from", "here")
    helper = build(lambda _bb, x: OP.nn.relu(x), x=SHAPE)["main"]
    mod[tvm.ir.GlobalVar("helper")] = helper.with_attr("global_symbol", "helper")
    result = Realize()(mod)
    assert result["main"].attrs["num_input"] == 1
    assert result.attrs["from"] == "here"
    tvm.ir.assert_structural_equal(result["helper"], mod["helper"])


def test_a_realized_module_is_left_alone():
    mod = realize(lambda bb, x: OUT.quantize(bb, conv(bb, GRID.quantize(bb, x))), x=SHAPE)
    tvm.ir.assert_structural_equal(realized(mod), realized(Realize()(mod)))
    x = normal(*SHAPE)
    np.testing.assert_array_equal(run_one(Realize()(mod), x), run_one(mod, x))


def test_a_quantizer_without_scale_is_refused_by_name():
    def body(bb, x):
        return conv(bb, bb.emit(simulated_quantize(x, spec=U8, kind=Kind.INPUT), "x_q"))

    mod = build(body, x=SHAPE)
    mod["main"] = with_node_names(mod["main"], {"x_q": "input/quantizer"})
    message = r"Quantizer 'x_q' of node 'input/quantizer' has no scale. Run CalibrateWeights"
    with pytest.raises(IRContractError, match=message):
        Realize()(mod)
