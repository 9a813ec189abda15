import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_quant
from plain_tvm import build
from specs import U8
from tvm_quant.backend import Runner
from tvm_quant.config import QuantizeConfig
from tvm_quant.hardware import HARDWARE
from tvm_quant.op import Kind, simulated_quantize
from tvm_quant.report import sqnr_db
from tvm_quant.transform import UntieScales
from tvm_quant.transform.range_records import RANGES, RangeRecord, with_records

OPS = relax.op
WIDE = (np.float32(0.5), 0)  # covers both operands of the concat
NARROW = (np.float32(0.0625), 0)  # covers one


def record(high):
    return RangeRecord(estimator="minmax", low=0.0, high=high)


def records(wide=127.5, narrow=15.9375):
    """Ranges of `a_q` and `b_q` whose own scales are WIDE and NARROW."""
    return {"a_q": record(wide), "b_q": record(narrow)}


def untied(mod, ranges=None, config=None):
    """The pass's result without the ranges, which it only reads."""
    found = UntieScales(config)(with_records(mod, ranges or records()))
    found["main"] = found["main"].without_attr(RANGES).without_attr("tvm_quant.node_names")
    return found


def quantized(x, scale=WIDE, *, group=-1):
    return simulated_quantize(x, *scale, spec=U8, kind=Kind.ACTIVATION, group=group)


@I.ir_module
class Shared:
    """`b` is read by a pool before the concat, and by a sum."""

    @R.function
    def main(a: R.Tensor((1, 4, 8, 8), "float32"), b: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tuple(
        R.Tensor((1, 8, 8, 8), "float32"), R.Tensor((1, 4, 8, 8), "float32")
    ):
        with R.dataflow():
            a_q = quantized(a, group=3)
            b_q = quantized(b, group=3)
            p = R.nn.max_pool2d(b_q, (3, 3), padding=(1, 1))
            c = R.concat((a_q, p), axis=1)
            s = R.add(b_q, b_q)
            R.output(c, s)
        return (c, s)


@I.ir_module
class Untied:
    @R.function
    def main(a: R.Tensor((1, 4, 8, 8), "float32"), b: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tuple(
        R.Tensor((1, 8, 8, 8), "float32"), R.Tensor((1, 4, 8, 8), "float32")
    ):
        with R.dataflow():
            a_q = quantized(a, group=4)
            b_q = quantized(b, NARROW)
            b_u = quantized(b, group=4)
            p = R.nn.max_pool2d(b_u, (3, 3), padding=(1, 1))
            c = R.concat((a_q, p), axis=1)
            s = R.add(b_q, b_q)
            R.output(c, s)
        return (c, s)


def test_a_reader_outside_the_concat_gets_the_scale_of_the_tensor_alone():
    tvm.ir.assert_structural_equal(untied(Shared), Untied)


def test_operands_of_like_range_stay_tied():
    tvm.ir.assert_structural_equal(untied(Shared, records(narrow=64.0)), Shared)


def test_the_switch_of_channel_scales_switches_it_off():
    config = QuantizeConfig(match_channel_scales=False)
    tvm.ir.assert_structural_equal(untied(Shared, config=config), Shared)


def test_what_the_hardware_ties_stays_tied():
    """On this row the operands of a sum share a scale too."""
    assert "relax.add" in HARDWARE["npu"].unified
    tvm.ir.assert_structural_equal(untied(Shared, config=QuantizeConfig(hardware="npu")), Shared)


def test_a_tensor_that_only_the_concat_reads_is_left_to_it():
    @I.ir_module
    class Alone:
        @R.function
        def main(
            a: R.Tensor((1, 4, 8, 8), "float32"), b: R.Tensor((1, 4, 8, 8), "float32")
        ) -> R.Tensor((1, 8, 8, 8), "float32"):
            with R.dataflow():
                a_q = quantized(a, group=3)
                b_q = quantized(b, group=3)
                c = R.concat((a_q, b_q), axis=1)
                R.output(c)
            return c

    tvm.ir.assert_structural_equal(untied(Alone), Alone)


def test_two_concats_of_one_tensor_go_their_own_ways():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((1, 4), "float32"), b: R.Tensor((1, 4), "float32")) -> R.Tuple(
            R.Tensor((1, 8), "float32"), R.Tensor((1, 8), "float32")
        ):
            with R.dataflow():
                a_q = quantized(a, group=0)
                b_q = quantized(b, group=0)
                c = R.concat((a_q, b_q), axis=1)
                d = R.concat((b_q, b_q), axis=1)
                R.output(c, d)
            return (c, d)

    @I.ir_module
    class After:
        @R.function
        def main(a: R.Tensor((1, 4), "float32"), b: R.Tensor((1, 4), "float32")) -> R.Tuple(
            R.Tensor((1, 8), "float32"), R.Tensor((1, 8), "float32")
        ):
            with R.dataflow():
                a_q = quantized(a, group=1)
                b_1 = quantized(b, group=1)
                c = R.concat((a_q, b_1), axis=1)
                b_2 = quantized(b, group=2)
                b_3 = quantized(b, group=2)
                d = R.concat((b_2, b_3), axis=1)
                R.output(c, d)
            return (c, d)

    tvm.ir.assert_structural_equal(untied(Before), After)


def test_a_concat_of_a_concat_stays_tied():
    @I.ir_module
    class Nested:
        @R.function
        def main(a: R.Tensor((1, 4), "float32"), b: R.Tensor((1, 4), "float32")) -> R.Tuple(
            R.Tensor((1, 12), "float32"), R.Tensor((1, 4), "float32")
        ):
            with R.dataflow():
                a_q = quantized(a, group=0)
                b_q = quantized(b, group=0)
                c = R.concat((a_q, b_q), axis=1)
                d = R.concat((c, b_q), axis=1)
                s = R.add(b_q, b_q)
                R.output(d, s)
            return (d, s)

    tvm.ir.assert_structural_equal(untied(Nested), Nested)


# Whole networks -----------------------------------------------------------------------------------


def values(seed, *shape, size=1.0):
    drawn = np.random.default_rng(seed).normal(size=shape) * size / np.sqrt(np.prod(shape[1:]))
    return drawn.astype("float32")


def kernel(seed, *shape, size=1.0):
    return relax.const(values(seed, *shape, size=size))


def branches(bb, x, ratio):
    """A tensor `ratio` times as large as the input, and the layer that reads it."""
    first = bb.emit(OPS.nn.relu(bb.emit(OPS.nn.conv2d(x, kernel(1, 4, 4, 1, 1)), "first")))
    return bb.emit(OPS.nn.conv2d(first, kernel(2, 4, 4, 1, 1, size=ratio)), "large")


def end(bb, large, small, ratio):
    """Both weigh the same in the result."""
    both = bb.emit(OPS.concat([large, small], axis=1), "both")
    parts = [values(3, 4, 4, 1, 1, size=1 / ratio), values(4, 4, 4, 1, 1)]
    return bb.emit(OPS.nn.conv2d(both, relax.const(np.concatenate(parts, axis=1))), "end")


def input_beside_a_layer(bb, x, ratio):
    return end(bb, branches(bb, x, ratio), x, ratio)


def pooled_input(bb, x, ratio):
    return end(bb, branches(bb, x, ratio), bb.emit(OPS.nn.max_pool2d(x, (3, 3), padding=1)), ratio)


def float_beside_a_layer(bb, x, ratio):
    return end(bb, branches(bb, x, ratio), bb.emit(OPS.nn.softmax(x, 1)), ratio)


def read_elsewhere(bb, x, ratio):
    small = bb.emit(OPS.nn.conv2d(x, kernel(5, 4, 4, 1, 1)), "small")
    other = bb.emit(OPS.nn.conv2d(small, kernel(6, 4, 4, 1, 1)), "other")
    return end(bb, branches(bb, x, ratio), small, ratio), other


@pytest.mark.parametrize("ratio", [1, 10, 100, 1000])
@pytest.mark.parametrize(
    "body", [input_beside_a_layer, pooled_input, float_beside_a_layer, read_elsewhere]
)
def test_a_small_tensor_beside_a_large_one_keeps_its_codes(body, ratio):
    mod = build(lambda bb, x: body(bb, x, ratio), x=(1, 4, 8, 8))
    data = np.random.default_rng(0).normal(size=(8, 1, 4, 8, 8)).astype("float32")
    int8 = tvm_quant.quantize(mod, dataset=list(data))
    for exact, close in zip(*(outputs(Runner(m), data) for m in (mod, int8)), strict=True):
        assert sqnr_db(exact, close) > 30


def outputs(runner, data):
    """Each output for all samples."""
    return list(map(np.stack, zip(*(runner.run({"x": x}) for x in data), strict=True)))
