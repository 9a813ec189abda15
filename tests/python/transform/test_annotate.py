import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from plain_tvm import build, run
from specs import S8, U8
from tvm_quant.config import LayerConfig, QuantizeConfig
from tvm_quant.errors import ConfigError
from tvm_quant.ir import bindings, with_node_names
from tvm_quant.ir.reasons import REASONS, float_reasons
from tvm_quant.op import Kind, QuantSpec, is_simulated, simulated_quantize, spec_of
from tvm_quant.transform.annotate import Annotate

W = relax.const(np.ones((4, 4, 3, 3), "float32"))
V = relax.const(np.ones((4, 10), "float32"))
S8_ROWS = QuantSpec(narrow=True, axis=0)
S8_COLUMNS = QuantSpec(narrow=True, axis=1)


def annotated(mod, config=None):
    """The annotated module without its reasons, which have tests of their own."""
    result = Annotate(config)(mod)
    result["main"] = result["main"].without_attr(REASONS)
    return result


def test_annotate_wraps_both_operands_of_conv2d():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 6, 6), "float32"):
            with R.dataflow():
                y = R.nn.conv2d(x, W)
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 6, 6), "float32"):
            with R.dataflow():
                x_q = simulated_quantize(x, spec=U8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, spec=S8_ROWS, kind=Kind.WEIGHT)
                y = R.nn.conv2d(x_q, w_q)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(annotated(Before), After)
    tvm.ir.assert_structural_equal(Annotate()(After), After)  # idempotent


def test_ports_that_read_one_tensor_with_one_grid_share_a_quantizer():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 4, 8, 8), "float32"),
        ) -> R.Tuple(R.Tensor((1, 4, 6, 6), "float32"), R.Tensor((1, 4, 6, 6), "float32")):
            with R.dataflow():
                y = R.nn.conv2d(x, W)
                z = R.nn.conv2d(x, W)
                out = (y, z)
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(
            x: R.Tensor((1, 4, 8, 8), "float32"),
        ) -> R.Tuple(R.Tensor((1, 4, 6, 6), "float32"), R.Tensor((1, 4, 6, 6), "float32")):
            with R.dataflow():
                x_q = simulated_quantize(x, spec=U8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, spec=S8_ROWS, kind=Kind.WEIGHT)
                y = R.nn.conv2d(x_q, w_q)
                z = R.nn.conv2d(x_q, w_q)
                out = (y, z)
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(annotated(Before), After)


def test_one_tensor_read_with_two_grids_gets_two_quantizers():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4, 4), "float32")) -> R.Tensor((2, 4, 4), "float32"):
            with R.dataflow():
                y = R.matmul(x, x)
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((2, 4, 4), "float32")) -> R.Tensor((2, 4, 4), "float32"):
            with R.dataflow():
                x_q = simulated_quantize(x, spec=U8, kind=Kind.INPUT)
                x_q1 = simulated_quantize(x, spec=S8, kind=Kind.INPUT)
                y = R.matmul(x_q, x_q1)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(annotated(Before), After)


def test_the_fields_of_a_concat_get_quantizers_of_one_group():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 10), "float32"):
            with R.dataflow():
                y = R.nn.conv2d(x, W)
                z = R.nn.relu(y)
                both = R.concat((y, z), axis=2)
                flat = R.mean(both, axis=[2, 3])
                out = R.matmul(flat, V)
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 10), "float32"):
            with R.dataflow():
                x_q = simulated_quantize(x, spec=U8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, spec=S8_ROWS, kind=Kind.WEIGHT)
                y = R.nn.conv2d(x_q, w_q)
                z = R.nn.relu(y)
                y_q = simulated_quantize(y, spec=U8, kind=Kind.ACTIVATION, group=0)
                z_q = simulated_quantize(z, spec=U8, kind=Kind.ACTIVATION, group=0)
                both = R.concat((y_q, z_q), axis=2)
                flat = R.mean(both, axis=[2, 3])
                flat_q = simulated_quantize(flat, spec=U8, kind=Kind.ACTIVATION)
                v_q = simulated_quantize(V, spec=S8_COLUMNS, kind=Kind.WEIGHT)
                out = R.matmul(flat_q, v_q)
                R.output(out)
            return out

    tvm.ir.assert_structural_equal(annotated(Before), After)


def test_a_network_without_quantizable_calls_stays_as_it_is():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                y = R.nn.softmax(x)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(annotated(Before), Before)


def test_branches_keep_their_bodies_and_each_block_its_own_quantizers():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (1, 4, 6, 6), "float32"
        ):
            with R.dataflow():
                y = R.nn.conv2d(x, W)
                R.output(y)
            if c:
                t = R.nn.conv2d(x, W)
                b = R.add(t, y)
            else:
                f = R.nn.relu(y)
                b = f
            with R.dataflow():
                z = R.nn.conv2d(x, W)
                out = R.add(z, b)
                R.output(out)
            return out

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (1, 4, 6, 6), "float32"
        ):
            with R.dataflow():
                x_q = simulated_quantize(x, spec=U8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, spec=S8_ROWS, kind=Kind.WEIGHT)
                y = R.nn.conv2d(x_q, w_q)
                R.output(y)
            if c:
                t = R.nn.conv2d(x, W)
                b = R.add(t, y)
            else:
                f = R.nn.relu(y)
                b = f
            with R.dataflow():
                x_q1 = simulated_quantize(x, spec=U8, kind=Kind.INPUT)
                w_q1 = simulated_quantize(W, spec=S8_ROWS, kind=Kind.WEIGHT)
                z = R.nn.conv2d(x_q1, w_q1)
                out = R.add(z, b)
                R.output(out)
            return out

    relax.analysis.well_formed(annotated(Before))
    tvm.ir.assert_structural_equal(annotated(Before), After)


def tail():
    def body(bb, x):
        flat = bb.emit(relax.op.mean(bb.emit(relax.op.nn.conv2d(x, W), "conv"), [2, 3]), "mean")
        return bb.emit(relax.op.nn.softmax(flat), "softmax")

    return build(body, x=(1, 4, 8, 8))


def test_an_annotated_network_computes_the_original_one():
    x = np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype("float32")
    np.testing.assert_array_equal(run(Annotate()(tail()), x), run(tail(), x))


def test_reasons_are_recorded_by_variable():
    mod = Annotate()(tail())
    assert float_reasons(mod["main"]) == {
        "mean": "no quantized layer reads its result",
        "softmax": "no integer form of this operator",
    }
    assert float_reasons(tail()["main"]) == {}


def test_names_and_attributes_of_the_function_are_kept():
    mod = tail()
    mod["main"] = with_node_names(mod["main"], {"conv": "stem/conv"}).with_attr("num_input", 1)
    attrs = Annotate()(mod)["main"].attrs
    assert attrs["num_input"] == 1
    assert dict(attrs["tvm_quant.node_names"]) == {"conv": "stem/conv"}


def test_other_functions_of_the_module_are_kept():
    mod = tail()
    mod[tvm.ir.GlobalVar("helper")] = tail()["main"].with_attr("global_symbol", "helper")
    kept = Annotate()(mod)
    tvm.ir.assert_structural_equal(kept["helper"], mod["helper"])


def test_overrides_select_by_the_name_of_the_model_file():
    mod = tail()
    mod["main"] = with_node_names(mod["main"], {"conv": "stem/conv"})
    config = QuantizeConfig(overrides={"stem/*": LayerConfig(nbit_weight=4, nbit_activation=6)})
    calls = [b.value for b in bindings(Annotate(config)(mod)["main"]) if is_simulated(b.value)]
    assert [spec_of(call).bits for call in calls] == [6, 4]


def test_an_error_of_the_config_arrives_as_such():
    with pytest.raises(ConfigError, match="skip: pattern 'head' matches no node"):
        Annotate(QuantizeConfig(skip=("head",)))(tail())
