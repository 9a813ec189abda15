import numpy as np
import pytest
import tvm
from tvm import IRModule, relax, tirx
from tvm.script import ir as I
from tvm.script import relax as S
from tvm.script import tirx as T

from calibrated import variable
from numpy_network import all_values, evaluate
from plain_tvm import QUICK, build
from realized import normal
from tvm_quant.ir.segments import cut

R, NN = relax.op, relax.op.nn


def cut_at(mod, *names):
    return cut(mod, [variable(mod, name) for name in names])


def walk(built, segments, inputs, call):
    """Values of all variables after running the segments in order: {name: value}."""
    values = dict(inputs)
    for segment in segments:
        given = call(built, segment.name, [values[var.name] for var in segment.reads])
        values |= zip([var.name for var in segment.gives], given, strict=True)
    return values


def in_numpy(built, name, arguments):
    return evaluate(IRModule({"main": built[name]}), *arguments)


class Compiled:
    def __init__(self, built):
        relax.analysis.well_formed(built)  # raises if not
        self.machine = relax.VirtualMachine(tvm.compile(built, QUICK), tvm.cpu())

    def __call__(self, _built, name, arguments):
        return list(self.machine[name](*arguments))


def test_a_segment_takes_what_it_reads_and_gives_what_is_read_later():
    @I.ir_module
    class Before:
        @S.function
        def main(x: S.Tensor((2, 3), "float32"), y: S.Tensor((2, 3), "float32")):
            with S.dataflow():
                a = S.nn.relu(x)
                b = S.multiply(a, x)
                c = S.add(b, y)
                d = S.subtract(c, a)
                e = S.tanh(d)
                S.output(e)
            return e

    @I.ir_module
    class After:
        @S.function
        def segment_0(x: S.Tensor((2, 3), "float32")):
            a = S.nn.relu(x)
            b = S.multiply(a, x)
            result = (a, b)
            return result  # noqa: RET504

        @S.function
        def segment_1(
            b: S.Tensor((2, 3), "float32"),
            y: S.Tensor((2, 3), "float32"),
            a: S.Tensor((2, 3), "float32"),
        ):
            c = S.add(b, y)
            d = S.subtract(c, a)
            result = (d,)
            return result  # noqa: RET504

    text = Before.script()
    built, segments = cut_at(Before, "b", "d")
    assert Before.script() == text
    tvm.ir.assert_structural_equal(built, After)
    found = [[[v.name for v in vs] for vs in (s.reads, s.gives)] for s in segments]
    assert found == [[["x"], ["a", "b"]], [["b", "y", "a"], ["d"]]]


def branching(b, x, y):
    """A residual, a tuple that lives over cuts, a shared weight and an input that is read late."""
    w = b.emit(relax.const(normal(3, 3, seed=3)), "w")
    p = b.emit(R.matmul(x, w), "p")
    parts = b.emit(relax.Tuple([p, x]), "parts")
    q = b.emit(R.matmul(b.emit(NN.relu(p), "r"), w), "q")
    s = b.emit(R.add(b.emit(R.add(q, p), "t"), parts[1]), "s")
    return s, b.emit(R.multiply(b.emit(R.subtract(parts[0], y), "u"), s), "v")


@pytest.mark.parametrize("ends", [["v"], ["p", "q", "v"], ["parts", "r", "q", "t", "s", "u", "v"]])
def test_segments_compute_what_the_whole_function_does(ends):
    mod = build(branching, x=(2, 3), y=(2, 3))
    x, y = np.float64(normal(2, 3)), np.float64(normal(2, 3, seed=1))
    built, segments = cut_at(mod, *ends)
    assert [segment.gives[-1].name for segment in segments] == ends
    values = walk(built, segments, {"x": x, "y": y}, in_numpy)
    exact = all_values(mod, x, y)
    for name in ends:
        np.testing.assert_array_equal(values[name], exact[name])


def test_compiled_segments_take_symbolic_dimensions_casts_and_branches():
    @I.ir_module
    class Module:
        @S.function
        def main(x: S.Tensor(("n", 3), "float32"), c: S.Tensor((), "bool")):
            n, m = T.int64(), T.int64()
            y = S.reshape(x, (n * 3,))
            cast = S.match_cast(S.nn.relu(y), S.Tensor((m,), "float32"))
            pair = (cast, y)
            z = S.add(cast, cast)
            if c:
                w = S.subtract(pair[0], z)
            else:
                w = S.multiply(pair[0], z)
            u = S.concat((S.concat((w, pair[1])), S.reshape(w, (m,))))
            return u  # noqa: RET504

    names = ["y", "pair", "z", "w", "u"]
    ends = [
        binding.var
        for block in Module["main"].body.blocks
        for binding in block.bindings
        if binding.var.name in names
    ]
    assert [end.name for end in ends] == names
    built, segments = cut(Module, ends)
    assert {"x", "cast"} <= {var.name for var in segments[-1].reads}
    call = Compiled(built)
    x = normal(2, 3)
    y = x.reshape(-1)
    relu = np.maximum(y, 0)
    for condition, w in [(True, -relu), (False, 2 * relu**2)]:
        inputs = {"x": tvm.runtime.tensor(x), "c": tvm.runtime.tensor(np.array(condition))}
        values = walk(built, segments, inputs, call)
        np.testing.assert_array_equal(values["u"].numpy(), np.concatenate([w, y, w]))


def test_the_rest_is_left_out_and_other_functions_stay():
    mod = build(branching, x=(tirx.Var("n", "int64"), 3), y=(2, 3))
    helper = build(lambda b, z: b.emit(NN.relu(z)), z=(2,))["main"]
    mod["helper"] = helper.with_attr("global_symbol", "helper")
    built, segments = cut_at(mod, "p", "q")
    assert {gvar.name_hint for gvar in built.get_global_vars()} == {
        "helper",
        "segment_0",
        "segment_1",
    }
    # `p` and `parts` are read only by what is left out.
    assert [[var.name for var in segment.gives] for segment in segments] == [["w", "p"], ["q"]]
