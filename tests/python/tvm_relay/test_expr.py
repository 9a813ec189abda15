"""Relay expressions are plain objects with identity; graphs of any depth can be walked."""

import copy
import pickle

import numpy as np
import pytest

from tvm_quant.errors import FrontendError
from tvm_relay.expr import Attrs, Call, Function, Op, Tuple, TupleWrapper, Var, const, var
from tvm_relay.free_vars import free_vars
from tvm_relay.module import Module
from tvm_relay.ty import Any, TensorType, TupleType
from tvm_relay.walk import post_order


def test_an_operator_is_one_object_a_name():
    assert Op("nn.relu") is Op("nn.relu")
    assert pickle.loads(pickle.dumps(Op("nn.relu"))) is Op("nn.relu")
    assert copy.deepcopy(Op("nn.relu")) is Op("nn.relu")


def test_expressions_compare_by_identity_and_types_by_value():
    assert var("x") != var("x")
    assert TensorType([1, 2]) == TensorType((1, 2), "float32")
    assert TupleType([TensorType(())]) == TupleType((TensorType(()),))
    assert TensorType((Any(),)) != TensorType((Any(),))


@pytest.mark.parametrize(
    ("make", "name", "first"),
    [
        (lambda x: x + 2.0, "add", "x"),
        (lambda x: 2.0 - x, "subtract", "2"),
        (lambda x: x * 2.0, "multiply", "x"),
        (lambda x: 2.0 / x, "divide", "2"),
        (lambda x: x < 2.0, "less", "x"),
    ],
)
def test_arithmetic_makes_calls_with_the_operands_in_their_order(make, name, first):
    x = var("x", shape=(3,))
    call = make(x)
    assert call.op is Op(name)
    assert [arg is x for arg in call.args] == [first == "x", first != "x"]


def test_constants_keep_arrays_and_narrow_python_numbers():
    assert const(1.5).type == TensorType((), "float32")
    assert const([1, 2]).type == TensorType((2,), "int32")
    assert const(np.zeros((2, 2))).type == TensorType((2, 2), "float64")
    assert const(np.zeros(2), "int8").type == TensorType((2,), "int8")


def test_a_variable_takes_a_type_or_a_shape():
    assert var("x", shape=(1, 2), dtype="int8").type_annotation == TensorType((1, 2), "int8")
    assert var("x", TensorType((1,))).type_annotation == TensorType((1,))
    with pytest.raises(FrontendError, match="'x': give a type or a shape, not both"):
        var("x", TensorType((1,)), shape=(1,))


def test_what_is_no_expression_is_refused_where_it_is_passed():
    with pytest.raises(FrontendError, match=r"add: An operand is a str; expected a Relay"):
        var("x") + "y"
    with pytest.raises(FrontendError, match="expected a variable"):
        Function((const(1),), const(1))


def test_attributes_read_as_fields_and_as_a_mapping():
    call = Call(Op("nn.softmax"), (var("x"),), {"axis": -1})
    assert call.attrs.axis == call.attrs["axis"] == -1
    assert call.attrs == Attrs(axis=-1)
    with pytest.raises(AttributeError, match="no attribute 'beta'"):
        _ = call.attrs.beta


def test_a_wrapped_tuple_unpacks_and_stands_for_itself():
    x = var("x")
    wrapped = TupleWrapper(Call(Op("split"), (x,)), 2)
    first, second = wrapped
    assert (first.index, second.index, wrapped[-1].index) == (0, 1, 1)
    assert Tuple((wrapped,)).fields == (wrapped.tuple_value,)
    with pytest.raises(IndexError, match="2 fields, index 2"):
        _ = wrapped[2]


def test_a_graph_deeper_than_the_stack_is_walked_once_a_node():
    value = x = var("x", shape=(1,))
    for _ in range(5000):
        value = value + value
    order = list(post_order(value))
    assert len(order) == 5001
    assert order[0] is x
    assert free_vars(value) == [x]


def test_free_variables_are_those_that_nothing_binds():
    x, y, z = Var("x"), Var("y"), Var("z")
    assert free_vars(Function((x,), x + y) + z) == [y, z]


def test_a_module_makes_a_function_of_free_variables_and_leaves_itself_alone():
    x, y = var("x"), var("y")
    mod = Module.from_expr(x + y)
    assert mod["main"].params == (x, y)
    other = mod.with_function("main", Function((x,), x))
    assert other["main"].body is x
    assert mod["main"].body is not x
    with pytest.raises(FrontendError, match=r"No function @other; the module has \['main'\]"):
        _ = mod["other"]
