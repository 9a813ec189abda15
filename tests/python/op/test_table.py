import numpy as np
import pytest
import tvm
from tvm import relax

from plain_tvm import build, run_one
from tvm_quant.ir import op_name
from tvm_quant.op import OP_SPECS, Role, op_function, role_of, why_no_integers

ELEMENTWISE = {name: spec for name, spec in OP_SPECS.items() if spec.function is not None}
BINARY = {
    f"relax.{name}"
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
}
POSITIVE = {"relax.rsqrt", "relax.sqrt", "relax.power"}


@pytest.mark.parametrize("name", OP_SPECS)
def test_every_operator_of_the_table_exists_in_relax(name):
    assert tvm.ir.Op.get(name).name == name


def call_of(name, *operands):
    function = relax.op
    for part in name.removeprefix("relax.").split("."):
        function = getattr(function, part)
    extra = {"relax.clip": (-0.5, 2.0)}.get(name, ())
    return function(*operands, *extra)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_the_function_of_an_elementwise_operator_is_what_relax_computes(name):
    rng = np.random.default_rng(0)
    low = 0.1 if name in POSITIVE else -4.0
    inputs = [rng.uniform(low, 4, (50,)).astype("float32") for _ in range(1 + (name in BINARY))]
    calls = []

    def body(_bb, *operands):
        calls.append(call_of(name, *operands))
        return calls[0]

    mod = build(body, **{f"x{i}": (50,) for i in range(len(inputs))})
    scalars = (-0.5, 2.0) if name == "relax.clip" else ()
    expected = op_function(calls[0])(*inputs, *scalars, calls[0].attrs)
    np.testing.assert_allclose(run_one(mod, *inputs), expected, rtol=2e-5, atol=2e-6)


def test_only_elementwise_roles_have_functions():
    elementwise = {Role.SUM, Role.PRODUCT, Role.CLAMP, Role.POINTWISE}
    assert {spec.role for spec in ELEMENTWISE.values()} == elementwise
    assert all(spec.function is not None for spec in OP_SPECS.values() if spec.role in elementwise)


def tensor(*shape):
    return relax.Var("t", relax.TensorType(shape, "float32"))


@pytest.mark.parametrize(
    ("call", "has_integers"),
    [
        (relax.op.reshape(tensor(2, 3), (6,)), True),
        (relax.op.nn.max_pool2d(tensor(1, 2, 4, 4)), True),
        (relax.op.image.resize2d(tensor(1, 2, 4, 4), (8, 8), method="nearest_neighbor"), True),
        (relax.op.image.resize2d(tensor(1, 2, 4, 4), (8, 8), method="linear"), False),
        (relax.op.nn.pad(tensor(2, 3), [0, 0, 1, 1]), True),
        (relax.op.nn.pad(tensor(2, 3), [0, 0, 1, 1], "constant", 1.0), False),
        (relax.op.nn.pad(tensor(2, 3), [0, 0, 1, 1], "reflect"), True),
    ],
)
def test_a_move_moves_unless_its_attributes_compute(call, has_integers):
    assert role_of(call) is Role.MOVE
    reason = None if has_integers else "these attributes compute new values"
    assert why_no_integers(call) == reason


def test_what_calls_no_operator_of_the_table_has_no_role():
    assert role_of(tensor(2)) is None
    softmax = relax.op.nn.softmax(tensor(2))
    assert op_name(softmax) not in OP_SPECS
    assert role_of(softmax) is None
