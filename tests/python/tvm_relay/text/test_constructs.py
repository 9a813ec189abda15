"""Each construct of the format: what it reads as, and what it reads as once it was written."""

import numpy as np
import pytest

import tvm_relay
from tvm_relay import expr as ir
from tvm_relay.expr import Call, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, const, var
from tvm_relay.module import Module
from tvm_relay.structural import assert_structural_equal
from tvm_relay.text import astext, fromtext, parse, parse_expr
from tvm_relay.text.builder import _MetaAttrs
from tvm_relay.ty import Any, FuncType, TensorType, TupleType
from tvm_relay.walk import post_order

VERSION = '#[version = "0.0.5"]\n'
SCALAR = TensorType(())
INT = TensorType((), "int32")
UNIT = Tuple(())


def x():
    return var("x", SCALAR)


def int_const(value):
    return const(value, "int32")


def let(value, body):
    """`let %a = value; body(%a)`."""
    bound = var("a")
    return Let(bound, value, body(bound))


def with_x(body, **function):
    """`fn (%x: float32) { body(%x) }`."""
    param = x()
    return Function((param,), body(param), **function)


def shared_in_branches(param):
    shared = Call(Op("nn.relu"), (param,))
    cond = const(True, "bool")
    return Tuple((If(cond, shared + shared, shared * param), shared))


def call_of_fn(param):
    p = var("p", SCALAR)
    return Call(Function((p,), p + p, attrs={"Primitive": 1}), (param,))


def apply_twice(param):
    f, p = var("f"), var("p")
    return Let(f, Function((p,), p * param), Call(f, (Call(f, (param,)),)))


def relu(value, **attrs):
    return Call(Op("nn.relu"), (value,), attrs)


ONE, TWO, THREE = (lambda: int_const(1)), (lambda: int_const(2)), (lambda: int_const(3))

# name: (text, the expression that it is)
CONSTRUCTS = {
    "integer": ("7", lambda: const(7, "int32")),
    "wide integer": ("2147483648", lambda: const(2147483648, "int64")),
    "integer of 64 bits": ("-3i64", lambda: const(-3, "int64")),
    "integer of 16 bits": ("-3i16", lambda: const(-3, "int16")),
    "integer of 32 bits": ("3i32", lambda: const(3, "int32")),
    "integer with an empty suffix": ("3i", lambda: const(3, "int32")),
    "signs cancel": ("--3", lambda: const(3, "int32")),
    "float": ("0.5f", lambda: const(0.5, "float32")),
    "float without a fraction": ("1f", lambda: const(1, "float32")),
    "float with an exponent": ("1e-05f", lambda: const(1e-5, "float32")),
    "float with a capital exponent": ("1E+2f", lambda: const(100, "float32")),
    "float of 16 bits": ("0.1f16", lambda: const(0.1, "float16")),
    "float of 64 bits": ("0.1f64", lambda: const(0.1, "float64")),
    "infinity": ("-inff", lambda: const(-np.inf, "float32")),
    "truth": ("True", lambda: const(True, "bool")),
    "unit": ("()", lambda: UNIT),
    "parentheses": ("((1))", ONE),
    "tuple of one": ("(1,)", lambda: Tuple((ONE(),))),
    "tuple": ("(1, 2, 3)", lambda: Tuple((ONE(), TWO(), THREE()))),
    "tuple with a last comma": ("(1, 2,)", lambda: Tuple((ONE(), TWO()))),
    "nested tuples": ("((1,), (2, ()))", lambda: Tuple((Tuple((ONE(),)), Tuple((TWO(), UNIT))))),
    "projection": ("(1, 2).1", lambda: TupleGetItem(Tuple((ONE(), TWO())), 1)),
    "projection of a projection": (
        "%0 = ((1, 2), 3); %0.0.1",
        lambda: TupleGetItem(TupleGetItem(Tuple((Tuple((ONE(), TWO())), THREE())), 0), 1),
    ),
    "projection of a call": ("@f(1).0", lambda: TupleGetItem(Call(GlobalVar("f"), (ONE(),)), 0)),
    "operator": ("nn.conv2d", lambda: Op("nn.conv2d")),
    "global name": ("@g", lambda: GlobalVar("g")),
    "call": ("abs(1)", lambda: Call(Op("abs"), (ONE(),))),
    "call without operands": ("@f()", lambda: Call(GlobalVar("f"), ())),
    "call with a last comma": ("add(1, 2,)", lambda: Call(Op("add"), (ONE(), TWO()))),
    "call of a call": ("@f(1)(2)", lambda: Call(Call(GlobalVar("f"), (ONE(),)), (TWO(),))),
    "sum": ("1 + 2", lambda: ONE() + TWO()),
    "difference": ("1 - 2", lambda: ONE() - TWO()),
    "difference without spaces": ("fn (%x: float32) { %x -1 }", lambda: with_x(lambda p: p - 1)),
    "product and quotient": ("1 * 2 / 3", lambda: ONE() * TWO() / THREE()),
    "product before sum": ("1 + 2 * 3", lambda: ONE() + TWO() * THREE()),
    "sum in parentheses": ("(1 + 2) * 3", lambda: (ONE() + TWO()) * THREE()),
    "sum of a sum": ("1 - 2 - 3", lambda: (ONE() - TWO()) - THREE()),
    "comparisons": (
        "(1 < 2, 1 > 2, 1 <= 2, 1 >= 2)",
        lambda: Tuple((ONE() < TWO(), ONE() > TWO(), ONE() <= TWO(), ONE() >= TWO())),
    ),
    "equality after comparison": (
        "1 + 2 < 3 == True",
        lambda: Call(Op("equal"), ((ONE() + TWO()) < THREE(), const(True, "bool"))),
    ),
    "inequality": ("1 != 2", lambda: Call(Op("not_equal"), (ONE(), TWO()))),
    "node": ("%0 = 1 + 2; %1 = %0 * %0; %1", lambda: (lambda s: s * s)(ONE() + TWO())),
    "nodes in any order of numbers": ("%7 = (); %2 = (%7,); %2", lambda: Tuple((Tuple(()),))),
    "let": ("let %a = 1; (%a, %a)", lambda: let(ONE(), lambda a: Tuple((a, a)))),
    "let that hides": (
        "let %a = 1; let %b = (let %a = 2; %a); (%a, %b)",
        lambda: let(
            ONE(),
            lambda a: (lambda b: Let(b, let(TWO(), lambda inner: inner), Tuple((a, b))))(var("b")),
        ),
    ),
    "let with a type": (
        "let %a: int32 = 1; %a",
        lambda: (lambda a: Let(a, ONE(), a))(var("a", INT)),
    ),
    "value that nobody reads": ("1; 2", lambda: Let(var(""), ONE(), TWO())),
    "let between nodes": (
        "%0 = 1 + 2; let %a = %0; %1 = %a * 3; %1 + %0",
        lambda: (lambda s: let(s, lambda a: a * THREE() + s))(ONE() + TWO()),
    ),
    "braces": ("{ { 1 } }", ONE),
    "if": (
        "if (True) { 1 } else { 2 }",
        lambda: If(const(True, "bool"), ONE(), TWO()),
    ),
    "if as an operand": (
        "%0 = if (1 < 2) { 1 } else { 2 }; %0 + 3",
        lambda: If(ONE() < TWO(), ONE(), TWO()) + THREE(),
    ),
    "node shared by branches": (
        "fn (%x: float32) {%1 = if (True) {%0 = nn.relu(%x); %0 + %0} else {%0 * %x}; (%1, %0)}",
        lambda: with_x(shared_in_branches),
    ),
    "function": ("fn (%x: float32) { %x }", lambda: with_x(lambda p: p)),
    "function without types": (
        "fn (%a, %b) { %a }",
        lambda: (lambda a, b: Function((a, b), a))(var("a"), var("b")),
    ),
    "function with a result type": (
        "fn (%x: float32) -> float32 { %x }",
        lambda: with_x(lambda p: p, ret_type=SCALAR),
    ),
    "function with attributes": (
        'fn (%x: float32, Primitive=1, hash="a1", relay.reshape_only=True) { %x }',
        lambda: with_x(
            lambda p: p, attrs={"Primitive": 1, "hash": "a1", "relay.reshape_only": True}
        ),
    ),
    "function with attributes alone": (
        "fn (Primitive=1) { 1 }",
        lambda: Function((), ONE(), attrs={"Primitive": 1}),
    ),
    "virtual devices are left out": (
        "fn (%x {virtual_device=1}: float32, virtual_device=1) { %x }",
        lambda: with_x(lambda p: p),
    ),
    "call of a function literal": (
        "fn (%x: float32) { %0 = fn (%p: float32, Primitive=1) { %p + %p }; %0(%x) }",
        lambda: with_x(call_of_fn),
    ),
    "call of a function literal in place": (
        "fn (%x: float32) { (fn (%p: float32, Primitive=1) { %p + %p })(%x) }",
        lambda: with_x(call_of_fn),
    ),
    "call of a local function": (
        "fn (%x: float32) { let %f = fn (%p) { %p * %x }; %f(%f(%x)) }",
        lambda: with_x(apply_twice),
    ),
    "function of a function": (
        "fn (%f: fn (float32, int32) -> float32) { %f }",
        lambda: (lambda f: Function((f,), f))(var("f", FuncType((SCALAR, INT), SCALAR))),
    ),
    "parameter of tuple type": (
        "fn (%t: (Tensor[(2, 3), float32], (int8,), ())) { %t.0 }",
        lambda: (lambda t: Function((t,), TupleGetItem(t, 0)))(
            var(
                "t",
                TupleType(
                    (
                        TensorType((2, 3)),
                        TupleType((TensorType((), "int8"),)),
                        TupleType(()),
                    )
                ),
            )
        ),
    ),
    "scalar types": (
        "fn (%a: int8, %b: uint8, %c: float16, %d: bool, %e: int64) { () }",
        lambda: Function(
            tuple(
                var(name, TensorType((), dtype))
                for name, dtype in zip(
                    "abcde", ("int8", "uint8", "float16", "bool", "int64"), strict=True
                )
            ),
            UNIT,
        ),
    ),
    "empty shape": ("fn (%x: Tensor[(), float32]) { %x }", lambda: with_x(lambda p: p)),
    "open dimension": (
        "fn (%a: Tensor[(?, 3), float32]) { %a }",
        lambda: (lambda a: Function((a,), a))(var("a", TensorType((Any(), 3)))),
    ),
    "types left open": (
        "fn (%a: _, %b: (int32, _), %c: fn (_) -> int32) -> _ { () }",
        lambda: Function((var("a"), var("b"), var("c")), UNIT),
    ),
    "free variables": (
        "free_var %x: float32; %x + %x",
        lambda: (lambda p: p + p)(x()),
    ),
    "numbers as attributes": (
        "@f(1, a=1, b=-2, c=0.1f, d=1e+10f, e=3i64, g=True)",
        lambda: Call(
            GlobalVar("f"), (ONE(),), {"a": 1, "b": -2, "c": 0.1, "d": 1e10, "e": 3, "g": True}
        ),
    ),
    "strings as attributes": (
        r"""@f(1, a="NCHW", b="", c="a\"b\\c\n\xC3\xA9", d='x')""",
        lambda: Call(GlobalVar("f"), (ONE(),), {"a": "NCHW", "b": "", "c": 'a"b\\c\né', "d": "x"}),
    ),
    "lists as attributes": (
        "@f(1, a=[1, 2,], b=[], c=[[0, 0], [1, 1]], d=(3, 4), e=[0.5f, 1f], g=[None])",
        lambda: Call(
            GlobalVar("f"),
            (ONE(),),
            {
                "a": (1, 2),
                "b": (),
                "c": ((0, 0), (1, 1)),
                "d": (3, 4),
                "e": (0.5, 1.0),
                "g": (None,),
            },
        ),
    ),
    "nothing as an attribute": (
        "@f(1, a=None, b=nullptr)",
        lambda: Call(GlobalVar("f"), (ONE(),), {"a": None, "b": None}),
    ),
    "attributes alone": (
        'zeros(shape=[1], dtype="int8")',
        lambda: Call(Op("zeros"), (), {"shape": (1,), "dtype": "int8"}),
    ),
    "attributes that are left out": (
        "nn.softmax(1)",
        lambda: Call(Op("nn.softmax"), (ONE(),), {"axis": -1}),
    ),
    "attributes whose default is another one in text": (
        "(nn.leaky_relu(1), concatenate((1,)), nn.batch_matmul(1, 2))",
        lambda: Tuple(
            (
                Call(Op("nn.leaky_relu"), (ONE(),), {"alpha": 0.25}),
                Call(Op("concatenate"), (Tuple((ONE(),)),), {"axis": 0}),
                Call(Op("nn.batch_matmul"), (ONE(), TWO()), {"transpose_b": False}),
            )
        ),
    ),
    "attributes that repeat operands": (
        'arange(0f, 3f, 1f, start=0f, stop=3f, step=1f, dtype="float32")',
        lambda: Call(Op("arange"), (const(0.0), const(3.0), const(1.0)), {"dtype": "float32"}),
    ),
    "class of attributes is left out": (
        '@g(1, n=2, attrs_type_key="attrs.TestAttrs")',
        lambda: Call(GlobalVar("g"), (ONE(),), {"n": 2}),
    ),
    "attributes named like keywords": (
        "@f(1, type=1, match=2)",
        lambda: Call(GlobalVar("f"), (ONE(),), {"type": 1, "match": 2}),
    ),
    "comments": (
        '/* ty=Tensor[(1), float32] span=a:0:0 */ 1 /* { " /* nested */ */ + // %x = {\n 2 // end',
        lambda: ONE() + TWO(),
    ),
    "a comment sign inside a string": (
        '@f(1, a="/* // */")',
        lambda: Call(GlobalVar("f"), (ONE(),), {"a": "/* // */"}),
    ),
    "name with dots": (
        "fn (%features.0.weight: float32) { %features.0.weight }",
        lambda: with_x(lambda p: p),
    ),
    "name with dots beside its tuple": (
        "fn (%a: (float32,), %a.0: float32) { %a.0 }",
        lambda: (lambda a, b: Function((a, b), b))(
            var("a", TupleType((SCALAR,))), var("a.0", SCALAR)
        ),
    ),
    "name with colons and slashes": (
        "fn (%onnx::Conv_193: float32, %a/b:0: float32) { %onnx::Conv_193 / %a/b:0 }",
        lambda: (lambda a, b: Function((a, b), a / b))(var("a", SCALAR), var("b", SCALAR)),
    ),
    "name in quotes": ('fn (%"x y": float32) { %"x y" }', lambda: with_x(lambda p: p)),
    "spaces and line ends": ("add (\r\n\t1 ,2 )\n", lambda: Call(Op("add"), (ONE(), TWO()))),
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_reads_as(name):
    text, expected = CONSTRUCTS[name]
    assert_structural_equal(parse_expr(text), expected())


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_reads_the_same_after_it_is_written(name):
    expr = parse_expr(CONSTRUCTS[name][0])
    assert_structural_equal(parse_expr(astext(expr)), expr)


def test_functions_of_a_module_call_each_other():
    mod = parse(
        VERSION
        + """
        def @main(%x: float32) { %0 = @g(%x); @g(%0) }
        def @g(%y: float32) -> float32 { %0 = %y + 1f; %0 }
        """
    )
    p, y = x(), var("y", SCALAR)
    g = GlobalVar("g")
    main = Function((p,), Call(g, (Call(g, (p,)),)))
    expected = Module({"main": main, g: Function((y,), y + 1.0, SCALAR)})
    assert_structural_equal(mod, expected)
    assert_structural_equal(fromtext(astext(mod)), mod)
    assert mod["main"].body.op is mod.get_global_var("g")


def test_a_module_may_be_continued():
    first = parse(VERSION + "def @f(%x: float32) { %x }")
    both = parse(VERSION + "def @main(%x: float32) { @f(%x) }", init_module=first)
    assert [key.name_hint for key in both.functions] == ["f", "main"]
    assert both["f"] is first["f"]


def test_expressions_and_modules_print_themselves():
    mod = parse(VERSION + "def @main(%x: float32) { %x }")
    assert mod.astext() == tvm_relay.astext(mod) == VERSION + "def @main(%x: float32) {\n  %x\n}\n"
    assert mod["main"].astext() == VERSION + "fn (%x: float32) {\n  %x\n}\n"
    weights = Tuple((const([1.0, 2.0]),))
    assert "#[metadata]" in weights.astext()
    assert "#[metadata]" not in weights.astext(show_meta_data=False)


def test_names_of_parameters_and_types_are_kept():
    text = VERSION + "def @main(%data: Tensor[(1, 3), float32], %w.0: Tensor[(3), int8]) { %data }"
    params = parse(astext(parse(text)))["main"].params
    assert [p.name_hint for p in params] == ["data", "w.0"]
    assert params[1].type_annotation == TensorType((3,), "int8")


def test_a_lone_function_is_the_main_of_a_module():
    mod = parse(VERSION + "fn (%x: float32) { %x }")
    assert [p.name_hint for p in mod["main"].params] == ["x"]


def test_a_lone_expression_becomes_a_function_of_its_free_variables():
    mod = parse(VERSION + "free_var %x: float32; free_var %y: float32; %y - %x")
    assert [p.name_hint for p in mod["main"].params] == ["y", "x"]


def test_a_node_that_several_read_is_one_object():
    body = parse(VERSION + "fn (%x: float32) { %0 = %x + 1f; (%0, %0) }")["main"].body
    assert body.fields[0] is body.fields[1]


def test_a_local_function_may_call_itself():
    expr = parse_expr("let %f = fn (%n: int32) { %f(%n - 1) }; %f(3)")
    assert isinstance(expr, Let) and expr.value.body.op is expr.var


def test_objects_may_be_passed_beside_the_text():
    table = {"relay.Constant": [const([1.0, 2.0]), const([3.0])]}
    mod = parse(
        VERSION + "fn () { (meta[relay.Constant][1], meta[relay.Constant][0]) }",
        init_meta_table=table,
    )
    assert mod["main"].body.fields == (table["relay.Constant"][1], table["relay.Constant"][0])


def test_nesting_has_no_depth_limit():
    depth = 1200  # deeper than Python's stack
    for text in (
        "(" * depth + "1" + ")" * depth,
        "(" * depth + "1" + ",)" * depth,
        " + ".join(["1"] * depth),
        "; ".join(f"let %x{i} = {i}" for i in range(depth)) + "; %x0",
        "%0 = 1 + 1; " + "".join(f"%{i + 1} = %{i} + 1; " for i in range(depth)) + f"%{depth}",
    ):
        expr = parse_expr(text)
        assert_structural_equal(parse_expr(astext(expr)), expr)


def test_braces_have_no_depth_limit():
    depth = 300
    expr = parse_expr("if (True) { " * depth + "1" + " } else { 2 }" * depth)
    assert_structural_equal(parse_expr(astext(expr)), expr)


def test_every_kind_of_expression_is_here():
    seen = {type(e) for text, _ in CONSTRUCTS.values() for e in post_order(parse_expr(text))}
    assert set(ir.Expr.__subclasses__()) - {_MetaAttrs} == seen | {Op}
