import numpy as np
import tvm
from tvm import relax
from tvm.relax import op as R

from calibrated import value_of
from plain_tvm import build, run_one
from tvm_quant.ir import constant_value, with_node_names
from tvm_quant.ir.reasons import REASONS
from tvm_quant.op import Kind, QuantSpec, simulated_quantize
from tvm_quant.op.simulated_quantize import scale_of
from tvm_quant.transform import Annotate
from tvm_quant.transform.quantizers import (
    quantizers,
    set_constants,
    set_scales,
    strip_quantizers,
)

RNG = np.random.default_rng(0)
KERNEL = relax.const(RNG.normal(size=(4, 3, 3, 3)).astype("float32"))


def network():
    def body(b, x):
        left = b.emit(R.nn.conv2d(x, KERNEL, padding=1), "left")
        right = b.emit(R.nn.conv2d(x, KERNEL, padding=1), "right")
        return left, right

    mod = build(body, x=(1, 3, 6, 6))
    mod["main"] = with_node_names(mod["main"], {"left": "a/Conv", "right": "b/Conv"})
    return mod


def test_a_quantizer_knows_its_operand_and_readers():
    first = quantizers(Annotate()(network())["main"])[0]
    assert (first.name, first.source, first.kind) == ("x_q", "x", Kind.INPUT)
    assert first.readers == (("a/Conv", "relax.nn.conv2d"), ("b/Conv", "relax.nn.conv2d"))
    assert str(first) == "tensor 'x' of node 'x', input of 'a/Conv', 'b/Conv'"


def test_a_weight_has_no_source():
    weights = [q for q in quantizers(Annotate()(network())["main"]) if q.kind is Kind.WEIGHT]
    assert all(weight.source is None for weight in weights)
    assert str(weights[0]).startswith("weight, input of 'a/Conv'")


def test_set_scales_changes_the_named_quantizers_only():
    mod = set_scales(Annotate()(network()), {"x_q": (np.float32(0.5), np.int32(3))})
    first, *others = quantizers(mod["main"])
    scale, zero_point = scale_of(first.call)
    assert (scale, zero_point) == (0.5, 3)
    assert all(len(other.call.args) == 1 for other in others)


def test_set_constants_gives_a_quantizer_another_operand():
    mod = Annotate()(network())
    (weight,) = [q.name for q in quantizers(mod["main"]) if q.kind is Kind.WEIGHT]
    zeros = np.zeros((4, 3, 3, 3), "float32")
    changed = value_of(set_constants(mod, {weight: zeros}), weight)
    np.testing.assert_array_equal(constant_value(changed.args[0]), zeros)
    tvm.ir.assert_structural_equal(set_constants(mod, {}), mod)


def test_strip_quantizers_undoes_annotate():
    before = network()
    after = strip_quantizers(Annotate()(before))
    after["main"] = after["main"].without_attr(REASONS)
    tvm.ir.assert_structural_equal(after, before)


def test_strip_quantizers_drops_calibrated_ones_and_chains_of_them():
    spec = QuantSpec(bits=2, narrow=True)

    def body(b, x):
        x = b.emit(simulated_quantize(x, 10.0, spec=spec, kind=Kind.INPUT), "one")
        x = b.emit(simulated_quantize(x, 20.0, spec=spec, kind=Kind.INPUT), "two")
        return b.emit(R.nn.relu(x))

    mod = strip_quantizers(build(body, x=(4,)))
    np.testing.assert_array_equal(run_one(mod, np.float32([-1, 0, 1, 2])), [0, 0, 1, 2])
