import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from plain_tvm import build, run_one
from prepared import assert_prepares, assert_same_results, const, names, nn, prepared
from tvm_quant.errors import FrontendError, IRContractError, UnsupportedError
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, node_name, op_name, with_node_names
from tvm_quant.transform import Prepare
from tvm_quant.transform.prepare import verify_prepared

c = relax.const
W, B = const(6, 4, 3, 3), const(6)


def batch_norm(data, *parameters):
    return nn.batch_norm(data, *parameters, axis=1, epsilon=0.0, training=False)


def test_prepare_brings_a_block_to_canonical_form():
    """All families of rewrites at once: padding, batch norm, relu6, residual sum, mean, dense."""
    gamma, var = const(4, seed=2), np.float32([0.25, 1, 4, 16])
    weight, head = const(4, 4, 3, 3), const(4, 3)

    def before(bb, x):
        padded = bb.emit(nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]))
        conv = bb.emit(nn.conv2d(padded, c(weight)))
        zeros = c(np.zeros(4, "float32"))
        norm = bb.emit(batch_norm(conv, c(gamma), zeros, zeros, c(var)))
        relu = bb.emit(nn.relu(bb.emit(relax.TupleGetItem(norm, 0))))
        six = bb.emit(relax.op.minimum(relu, c(np.float32(6))))
        mean = bb.emit(nn.adaptive_avg_pool2d(bb.emit(relax.op.add(six, x)), (1, 1)))
        flat = bb.emit(relax.op.reshape(bb.emit(relax.op.reshape(mean, (2, 4, 1))), (2, 4)))
        dropped = bb.emit(relax.TupleGetItem(bb.emit(nn.dropout(flat)), 0))
        product = bb.emit(relax.op.matmul(dropped, bb.emit(relax.op.permute_dims(c(head.T)))))
        return relax.op.subtract(product, c(np.float32([[1, 2, 3]])))

    def after(bb, x):
        scale = (gamma / np.sqrt(var)).reshape(4, 1, 1, 1)
        conv = bb.emit(nn.conv2d(x, c(weight * scale), padding=1))
        six = bb.emit(relax.op.clip(conv, 0.0, 6.0))
        mean = bb.emit(relax.op.mean(bb.emit(relax.op.add(six, x)), [2, 3], keepdims=True))
        product = bb.emit(relax.op.matmul(bb.emit(relax.op.reshape(mean, (2, 4))), c(head)))
        return relax.op.add(product, c(np.float32([-1, -2, -3])))

    assert_prepares(before, after, x=(2, 4, 6, 6))


def parametric():
    """conv(x, w) + b with w and b as inputs."""
    return build(
        lambda bb, x, w, b: relax.op.add(bb.emit(nn.conv2d(x, w)), b),
        x=(2, 4, 6, 6),
        w=(6, 4, 3, 3),
        b=(6, 1, 1),
    )


def test_params_become_constants():
    mod = Prepare({"w": W, "b": tvm.runtime.tensor(B.reshape(6, 1, 1))})(parametric())
    expected = build(
        lambda bb, x: relax.op.add(bb.emit(nn.conv2d(x, c(W))), c(B.reshape(1, 6, 1, 1))),
        x=(2, 4, 6, 6),
    )
    tvm.ir.assert_structural_equal(mod, relax.transform.CanonicalizeBindings()(expected))


def test_a_param_that_main_does_not_have_is_refused_with_the_names_there_are():
    with pytest.raises(FrontendError, match=r"'weight' is no input of main.*\['b', 'w', 'x'\]"):
        Prepare({"weight": W})(parametric())


def test_a_param_of_another_shape_is_refused():
    with pytest.raises(
        FrontendError, match=r"'w' has shape \(6, 4, 3\); main expects \(6, 4, 3, 3\)"
    ):
        Prepare({"w": W[..., 0]})(parametric())


def test_a_module_without_main_is_refused():
    mod = build(lambda bb, x: nn.relu(x), x=(2,))
    other = tvm.IRModule({"predict": mod["main"].with_attr("global_symbol", "predict")})
    with pytest.raises(UnsupportedError, match="no function 'main'"):
        Prepare()(other)


def test_an_open_batch_stays_open():
    n = tvm.tirx.Var("n", "int64")

    def body(bb, x):
        flat = bb.emit(relax.op.reshape(bb.emit(nn.relu(x)), (n, 12)))
        return relax.op.matmul(flat, bb.emit(relax.op.permute_dims(c(const(5, 12)), [1, 0])))

    mod = prepared(body, x=(n, 3, 4))
    assert names(mod) == ["nn.relu", "reshape", "matmul"]
    assert not isinstance(mod["main"].ret_ty.shape.values[0], tvm.tirx.IntImm)


def test_private_functions_are_inlined():
    @I.ir_module
    class Nested:
        @R.function(private=True)
        def inner(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            cls = Nested
            with R.dataflow():
                y = cls.inner(x)
                z = R.tanh(y)
                R.output(z)
            return z

    mod = Prepare()(Nested)
    assert names(mod) == ["nn.relu", "tanh"]
    assert len(mod.functions) == 1


def test_calls_outside_dataflow_blocks_are_prepared_as_well():
    @I.ir_module
    class Plain:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return R.subtract(x, R.const(2.0, "float32"))

    (block,) = Prepare()(Plain)["main"].body.blocks
    assert isinstance(block, relax.DataflowBlock)
    assert op_name(block.bindings[0].value) == "relax.add"


def branching(condition: bool):
    """A scaled tensor that a branch of an If reads, with a foldable call inside the branch."""

    @I.ir_module
    class Branching:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), take: R.Tensor((), "bool")) -> R.Tensor(
            (2, 3), "float32"
        ):
            y = R.divide(x, R.const(2.0, "float32"))
            if take:
                a = R.subtract(y, R.const(1.0, "float32"))
                z = R.nn.relu(a)
            else:
                z = R.tanh(y)
            return R.subtract(z, R.const(3.0, "float32"))

    mod = Prepare()(Branching)
    verify_prepared(mod)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    flag = np.array(condition)
    np.testing.assert_allclose(run_one(mod, x, flag), run_one(Branching, x, flag), atol=1e-6)
    return mod


@pytest.mark.parametrize("condition", [True, False])
def test_branches_stay_as_they_are_and_what_surrounds_them_is_prepared(condition):
    func = branching(condition)["main"]
    outside = [op_name(binding.value) for binding in bindings(func)]
    assert outside == ["relax.multiply", None, "relax.add"]
    text = func.script()
    assert text.count("R.subtract") == 1


def test_several_outputs_among_them_an_input_a_constant_and_one_twice():
    def body(bb, x):
        y = bb.emit(relax.op.subtract(x, c(np.float32(1))))
        return y, x, c(np.float32([1, 2])), y

    assert len(prepared(body, x=(2, 3))["main"].ret_ty.fields) == 4


def test_names_of_nodes_are_carried_through_every_rewrite():
    def body(bb, x):
        conv = bb.emit(nn.conv2d(x, c(W)), "a")
        norm = bb.emit(nn.batch_norm(conv, *[c(B)] * 4, axis=1, training=False), "b")
        item = bb.emit(relax.TupleGetItem(norm, 0), "d")
        return bb.emit(relax.op.clip(bb.emit(nn.relu(item), "e"), 0.0, 6.0), "f")

    mod = build(body, x=(2, 4, 6, 6))
    nodes = {"a": "stem/conv", "b": "stem/norm", "d": "stem/norm", "e": "relu", "f": "clip"}
    mod["main"] = with_node_names(mod["main"], nodes)
    func = Prepare()(mod)["main"]
    assert [
        (str(b.var.name), node_name(func, b.var), op_name(b.value)) for b in bindings(func)
    ] == [
        ("stem_conv", "stem/conv", "relax.nn.conv2d"),
        ("stem_norm", "stem/norm", "relax.add"),
        ("clip", "clip", "relax.clip"),
    ]


def test_verify_prepared_names_what_is_not_in_form():
    mod = build(lambda bb, x: bb.emit(relax.op.subtract(x, c(np.float32(1))), "minus"), x=(2,))
    mod["main"] = with_node_names(mod["main"], {"minus": "head/sub"})
    message = r"relax.subtract \(minus in @main, node 'head/sub'\).*use_inverse.*Prepare first"
    with pytest.raises(IRContractError, match=message):
        verify_prepared(mod)


def test_verify_prepared_refuses_names_used_twice():
    first, second = (relax.Var("y", relax.TensorType((2,), "float32")) for _ in range(2))
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    pairs = [relax.VarBinding(first, nn.relu(x)), relax.VarBinding(second, relax.op.tanh(first))]
    body = relax.SeqExpr([relax.BindingBlock(pairs)], second)
    with pytest.raises(IRContractError, match="one name"):
        verify_prepared(tvm.IRModule({"main": relax.Function([x], body, x.ty)}))


def test_a_module_of_another_importer_is_prepared_without_opaque_kernels(shared):
    """What `relax.frontend.onnx.from_onnx` makes of MobileNetV2: 70 kernels for its ReLU6."""
    onnx = pytest.importorskip("onnx")
    from tvm.relax.frontend.onnx import from_onnx

    path = shared / "models/imagenet/mobilenetv2_refit.onnx"
    theirs = Prepare()(from_onnx(onnx.load(path)))
    assert set(names(theirs)) == {"nn.conv2d", "add", "clip", "mean", "reshape", "matmul"}
    ours, _ = load(path)
    assert sorted(names(theirs)) == sorted(names(Prepare()(ours)))


def test_random_chains_of_constants_around_a_convolution_compute_the_same():
    rng = np.random.default_rng(0)
    operators = (relax.op.add, relax.op.multiply, relax.op.subtract, relax.op.divide)
    shapes = ((), (1,), (4, 1, 1), (1, 4, 1, 1), (4, 6, 6))

    def body(bb, x):
        for index in range(4):
            for _ in range(2):
                shape = shapes[rng.integers(len(shapes))]
                value = rng.uniform(0.5, 2, shape).astype(np.float32)
                x = bb.emit(operators[rng.integers(len(operators))](x, c(value)))
            weight = rng.normal(size=(4, 4 if index % 2 else 1, 3, 3)).astype(np.float32)
            x = bb.emit(nn.conv2d(x, c(weight), padding=1, groups=1 if index % 2 else 4))
        return x

    for _ in range(3):
        original = build(body, x=(1, 4, 6, 6))
        assert_same_results(original, Prepare()(original), limit=1e-4)
