import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as S
from tvm.script import tirx as T

from numpy_network import evaluate
from plain_tvm import build
from realized import normal
from tvm_quant.ir.rebuild import Substitute, rebuild

R, NN = relax.op, relax.op.nn


@I.ir_module
class Before:
    @S.function
    def main(x: S.Tensor((2, 3), "float32")) -> S.Tensor((2, 3), "float32"):
        with S.dataflow():
            y = S.nn.relu(x)
            z = S.multiply(y, y)
            S.output(z)
        return z


def doubled(builder, old, new):
    return builder.emit(R.add(new, new), f"{old.name}_doubled") if old.name == "y" else new


def test_later_bindings_read_what_the_visitor_returns():
    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((2, 3), "float32")) -> S.Tensor((2, 3), "float32"):
            y = S.nn.relu(x)
            y_doubled = S.add(y, y)
            z = S.multiply(y_doubled, y_doubled)
            result = z
            return result  # noqa: RET504

    seen = []

    def visit(builder, old, new):
        seen.append((old, new))
        return doubled(builder, old, new)

    got = rebuild(Before, visit, lambda: seen[-1][1])
    tvm.ir.assert_structural_equal(got, After)
    assert [str(new.name) for _old, new in seen] == ["y", "z"]


def test_parameters_are_added_behind_and_the_module_stays():
    extra = relax.Var("extra", relax.TensorType((2, 3), "float32"))
    last = []

    def visit(builder, old, new):
        last.append(builder.emit(R.subtract(new, extra)) if old.name == "y" else new)
        return last[-1]

    text = Before.script()
    got = rebuild(Before, visit, lambda: relax.Tuple(last), extra_params=[extra])
    assert Before.script() == text
    assert [str(param.name) for param in got["main"].params] == ["x", "extra"]
    x, shift = normal(2, 3), normal(2, 3, seed=1)
    y, z = evaluate(got, x, shift)
    np.testing.assert_allclose(y, np.maximum(x, 0) - shift)
    np.testing.assert_allclose(z, y**2)


def test_match_casts_tuples_and_other_functions_come_along():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def helper(a: T.Buffer((2,), "float32")):
            T.evaluate(0)

        @S.function
        def main(x: S.Tensor(("n", 3), "float32")) -> S.Tensor(ndim=2, dtype="float32"):
            m = T.int64()
            y = S.match_cast(S.nn.relu(x), S.Tensor((m, 3), "float32"))
            pair = (y, x)
            return S.concat((pair[0], pair[1]), axis=0)

    last = []

    def visit(_builder, _old, new):
        last.append(new)
        return new

    got = rebuild(Module, visit, lambda: last[-1])
    assert {str(gvar.name_hint) for gvar in got.get_global_vars()} == {"helper", "main"}
    text = got["main"].script()
    assert "match_cast" in text
    assert "R.concat" in text
    relax.analysis.well_formed(got)  # raises if not


def test_branches_read_what_the_visitor_returns():
    @I.ir_module
    class Module:
        @S.function
        def main(x: S.Tensor((2,), "float32"), c: S.Tensor((), "bool")):
            y = S.nn.relu(x)
            if c:
                z = S.add(y, y)
            else:
                z = S.multiply(y, y)
            return z

    results = []

    def visit(builder, old, new):
        results.append(doubled(builder, old, new))
        return results[-1]

    got = rebuild(Module, visit, lambda: results[-1])
    text = got["main"].script()
    assert text.count("y_doubled") >= 4
    relax.analysis.well_formed(got)  # raises if not


def test_substitute_replaces_variables_as_they_stand_at_the_time():
    x, y = (relax.Var(name, relax.TensorType((2,), "float32")) for name in "xy")
    substitute = Substitute({})
    expr = relax.BlockBuilder().normalize(R.add(x, x))
    assert substitute.visit_expr(expr).args[0].same_as(x)
    substitute.values[x] = y
    replaced = substitute.visit_expr(expr)
    assert [arg.name for arg in replaced.args] == ["y", "y"]


def test_inputs_stay_the_same_variables():
    mod = build(lambda b, x: b.emit(NN.relu(x)), x=(2,))
    got = rebuild(mod, lambda _b, _old, new: new, lambda: mod["main"].params[0])
    assert got["main"].params[0].same_as(mod["main"].params[0])
