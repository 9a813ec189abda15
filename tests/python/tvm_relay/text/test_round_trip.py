"""Random programs read the same after they are written; random text gives only our errors."""

from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    Op,
    Tuple,
    TupleGetItem,
    Var,
)
from tvm_relay.module import Module
from tvm_relay.op import OPS, REQUIRED
from tvm_relay.structural import assert_structural_equal
from tvm_relay.text import RelayTextError, astext, parse, parse_expr
from tvm_relay.ty import FuncType, TensorType, TupleType

DTYPES = ("float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
NAMES = st.one_of(
    st.text('abxyz_019./:$ -é"\\\n%', max_size=6),
    st.sampled_from(["if", "let", "fn", "x.0", "inff"]),
)
PROGRAMS = Path(__file__).parent / "programs"

tensor_types = st.builds(
    TensorType, st.lists(st.integers(0, 5), max_size=3).map(tuple), st.sampled_from(DTYPES)
)
types = st.recursive(
    tensor_types,
    lambda inner: st.one_of(
        st.builds(TupleType, st.lists(inner, max_size=3).map(tuple)),
        st.builds(FuncType, st.lists(inner, max_size=2).map(tuple), inner),
    ),
    max_leaves=4,
)
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=4)
    ).filter(lambda value: value is None or not isinstance(value, str) or value.isprintable()),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
attributes = st.dictionaries(
    st.from_regex(r"[a-z_]{1,4}(\.[a-z]{1,2})?", fullmatch=True).filter(
        lambda name: name not in ("meta", "fn", "if", "let", "def", "else", "_", "inff", "nanf")
    ),
    values,
    max_size=3,
)


@st.composite
def constants(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    bits = draw(st.integers(0, 2**32 - 1))
    with np.errstate(over="ignore"):
        return Constant((np.random.default_rng(bits).normal(size=shape) * 3).astype(dtype))


class Grower:
    """Draws expressions that read what was drawn before, so that values are shared.

    Args:
        functions: global functions that may be called.
    """

    def __init__(self, draw, functions):
        self.draw = draw
        self.functions = functions

    def value(self, known, depth):
        kind = self.draw(st.sampled_from(self.kinds(known, depth)))
        expr = kind(self, known, depth)
        known.append(expr)
        return expr

    def kinds(self, known, depth):
        simple = [Grower.constant, Grower.free, *([Grower.again] * 3 if known else [])]
        deep = [Grower.call, Grower.call, Grower.tuple, Grower.item, Grower.let]
        braces = [Grower.choice, Grower.function, Grower.applied]
        return simple if depth == 0 else simple + deep + braces

    def constant(self, _known, _depth):
        return self.draw(constants())

    def free(self, known, _depth):
        return Var(self.draw(NAMES), self.draw(st.none() | types))

    def again(self, known, _depth):
        return self.draw(st.sampled_from(known))

    def call(self, known, depth):
        count = self.draw(st.integers(0, 3))
        args = tuple(self.value(known, depth - 1) for _ in range(count))
        if self.draw(st.booleans()):
            return Call(self.draw(st.sampled_from(self.functions)), args, self.draw(attributes))
        row = OPS[self.draw(st.sampled_from(sorted(OPS)))]
        given = {name: self.draw(values) for name in row.attributes if self.draw(st.booleans())}
        needed = {name for name, value in row.attributes.items() if value is REQUIRED}
        given |= {name: self.draw(values) for name in needed - set(given)}
        return Call(Op(row.name), args, given)

    def tuple(self, known, depth):
        count = self.draw(st.integers(0, 3))
        return Tuple(tuple(self.value(known, depth - 1) for _ in range(count)))

    def item(self, known, depth):
        value = self.value(known, depth - 1)
        if isinstance(value, Constant):  # a number has no fields
            value = Tuple((value,))
        return TupleGetItem(value, self.draw(st.integers(0, 3)))

    def let(self, known, depth):
        var = Var(self.draw(NAMES), self.draw(st.none() | types))
        bound = self.value(list(known), depth - 1)
        return Let(var, bound, self.inside([*known, var], depth))

    def choice(self, known, depth):
        cond = self.value(known, depth - 1)
        return If(cond, self.inside(known, depth), self.inside(known, depth))

    def function(self, known, depth):
        params = self.params()
        body = self.inside([*known, *params], depth)
        return Function(params, body, self.draw(st.none() | types), (), self.draw(attributes))

    def applied(self, known, depth):
        return Call(self.function(known, depth), (self.value(known, depth - 1),))

    def inside(self, known, depth):
        """What is drawn inside a scope is known only there."""
        return self.value(list(known), depth - 1)

    def params(self):
        count = self.draw(st.integers(0, 2))
        return tuple(Var(self.draw(NAMES), self.draw(st.none() | types)) for _ in range(count))


@st.composite
def expressions(draw):
    grower = Grower(draw, [GlobalVar("g"), GlobalVar("h.1")])
    return grower.value([], draw(st.integers(0, 3)))


@st.composite
def modules(draw):
    names = ["main", "g", "h.1"][: draw(st.integers(1, 3))]
    calls = [GlobalVar(name) for name in names]
    grower = Grower(draw, calls)
    functions = {}
    for name in calls:
        params = grower.params()
        body = grower.value([*params], draw(st.integers(0, 2)))
        bound = Let(Var("t"), Call(draw(st.sampled_from(calls)), (body,)), body)
        functions[name] = Function(params, bound, None, (), draw(attributes))
    return Module(functions)


@settings(max_examples=150)
@given(expressions())
def test_a_random_expression_reads_the_same(expr):
    written = astext(expr)
    read = parse_expr(written)
    assert_structural_equal(read, expr)
    assert astext(read) == written


@settings(max_examples=60)
@given(modules())
def test_a_random_module_reads_the_same(mod):
    written = astext(mod)
    read = parse(written)
    assert_structural_equal(read, mod)
    assert astext(read) == written


@cache
def real_programs():
    return [path.read_text() for path in sorted(PROGRAMS.glob("*.relay"))]


def read_or_refuse(text):
    """A module, or an error with a place; any other error fails the test."""
    with suppress(RelayTextError):
        parse(text)


@settings(max_examples=150)
@given(st.data())
def test_a_text_cut_short_gives_only_our_error(data):
    text = data.draw(st.sampled_from(real_programs()))
    read_or_refuse(text[: data.draw(st.integers(0, len(text)))])


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_text_gives_only_our_error(data):
    text = data.draw(st.sampled_from(real_programs()))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        length = data.draw(st.sampled_from([0, 1, 1, 5]))
        piece = data.draw(st.text('%@[](){}0123.,;=/*-"#meta fn let if é\n\\', max_size=3))
        text = text[:place] + piece + text[place + length :]
    read_or_refuse(text)


@settings(max_examples=100)
@given(st.text())
def test_any_text_gives_only_our_error(text):
    read_or_refuse('#[version = "0.0.5"]' + text)
