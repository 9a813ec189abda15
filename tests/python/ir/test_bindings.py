import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from plain_tvm import build
from tvm_quant.ir import bindings, consumers, op_name, producers, tensor_shape
from tvm_quant.ir.bindings import flat_operands


@I.ir_module
class Branching:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tuple(
        R.Tensor((2, 6), "float32"), R.Tensor((2, 3), "float32")
    ):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.concat((a, x), axis=1)
            R.output(a, b)
        if c:
            inner = R.add(a, x)
            d = inner
        else:
            other = R.subtract(a, x)
            d = other
        return (b, d)


def variables(func):
    return {binding.var.name: binding.var for binding in bindings(func)} | {
        param.name: param for param in func.params
    }


def test_bindings_lists_the_top_level_in_order():
    names = [binding.var.name for binding in bindings(Branching["main"])]
    assert names[:2] == ["a", "b"]
    assert "inner" not in names
    assert "other" not in names


def test_producers_gives_the_value_of_each_variable():
    func = Branching["main"]
    named = variables(func)
    assert op_name(producers(func)[named["a"]]) == "relax.nn.relu"


def test_consumers_counts_ports_branches_and_the_result():
    func = Branching["main"]
    named = variables(func)
    uses = {
        name: [(None if user is None else user.name, port) for user, port in consumers(func)[var]]
        for name, var in named.items()
    }
    assert uses["x"] == [("a", 0), ("b", 1), (None, -1)]
    assert uses["a"] == [("b", 0), (None, -1)]
    assert uses["b"] == [(None, -1)]
    assert uses["c"] == [(None, -1)]


def test_a_tensor_read_twice_by_one_call_has_two_uses():
    func = build(lambda bb, x: bb.emit(relax.op.add(x, x), "y"), x=(2,))["main"]
    (x,) = func.params
    assert [port for _user, port in consumers(func)[x]] == [0, 1]


def test_flat_operands_makes_each_field_of_a_concat_a_port():
    x, y = (relax.Var(name, relax.TensorType((2, 3), "float32")) for name in "xy")
    assert flat_operands(relax.op.concat([x, y, x], axis=1)) == [x, y, x]


def test_op_name_is_none_for_what_calls_no_operator():
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    assert op_name(relax.op.nn.relu(x)) == "relax.nn.relu"
    assert op_name(x) is None
    assert op_name(relax.Call(tvm.ir.GlobalVar("f"), [x])) is None


def test_tensor_shape_marks_symbolic_dimensions():
    n = tvm.tirx.Var("n", "int64")
    shapes = {
        (2, 3): relax.TensorType((2, 3), "float32"),
        (None, 3): relax.TensorType((n, 3), "float32"),
        (None, None): relax.TensorType(None, "float32", ndim=2),
        (): relax.TensorType((), "float32"),
        None: relax.TensorType(None, "float32"),
    }
    for shape, ty in shapes.items():
        assert tensor_shape(relax.Var("x", ty)) == shape
    pair = relax.TupleType([relax.TensorType((2,), "float32")])
    assert tensor_shape(relax.Var("x", pair)) is None
