import numpy as np
import pytest
from tvm import relax

from tvm_quant.ir import constant, constant_value


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_a_constant_keeps_type_and_value(dtype):
    array = np.array([[0, 1, 100]], dtype)
    value = constant_value(constant(array))
    assert value.dtype == dtype
    np.testing.assert_array_equal(value, array)


def test_a_constant_keeps_64_bits():
    assert constant_value(constant(np.int64(2**40 + 1))) == 2**40 + 1


def test_a_scalar_has_rank_zero():
    assert constant_value(constant(np.float32(0.5))).shape == ()


def test_anything_else_has_no_constant_value():
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    for expr in (x, relax.op.nn.relu(x), relax.prim_value(3), relax.ShapeExpr([1, 2])):
        assert constant_value(expr) is None
