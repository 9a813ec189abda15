"""What is refused, and where the error points."""

import pytest

from tvm_quant.errors import FrontendError
from tvm_relay.text import RelayTextError, parse, parse_expr

VERSION = '#[version = "0.0.5"]\n'

# (expression, line, column, a part of the message)
REFUSED = [
    ("add(1,\n  nn.relu(%y))", 2, 11, "%y is not defined here"),
    ("%0 + 1", 1, 1, "%0 is not defined here"),
    ("add(1; 2)", 1, 6, "found ';'; expected ')', ','"),
    ("add(1, 2", 1, 9, "the text ends too early; expected ')'"),
    ("", 1, 1, "the version of the format is missing"),
    ("1 +", 1, 4, "the text ends too early"),
    ("1 $ 2", 1, 3, "'$' means nothing here"),
    ("1 + 1.5", 1, 5, "A float has a suffix, as in 1.5f"),
    ("clip(1, a_min=0.5)", 1, 16, "A float has a suffix, as in 1.5f"),
    ("3i8", 1, 1, "3i8 has 8 bits; expected i16, i32 or i64"),
    ("40000i16", 1, 1, "40000i16 does not fit in int16"),
    ("9223372036854775808", 1, 1, "does not fit in int64"),
    ("1f8", 1, 1, "1f8 has 8 bits"),
    ("1e39f", 1, 1, "does not fit in float32"),
    ("9" * 5000, 1, 1, "integer string conversion"),
    ("let %a = %a + 1; %a", 1, 10, "%a is read in its own value"),
    ("if (True) { let %a = 1; %a } else { %a }", 1, 37, "%a is not defined here"),
    ("%0 = 1; %0 = 2; %0", 1, 9, "%0 is defined twice"),
    (
        "%2 = if (True) { %0 = (); %0 } else { %0 = (1,); %0 }; (%2, %0)",
        1,
        61,
        "%0 is defined in several braces",
    ),
    ("fn (%a, %a) { %a }", 1, 4, "two parameters have the name %a"),
    ("@f(1, a=1, a=2)", 1, 1, "the attribute 'a' is given twice"),
    ("meta[relay.Constant][0]", 1, 1, "there is no relay.Constant in the metadata"),
    ("meta[relay.Constant][x]", 1, 1, "has the form meta[type][number]"),
    ("1 /* no end", 1, 3, "this comment has no end"),
    ('@f(1, a="no end)', 1, 9, "means nothing here"),
    ("(1, 2).-1", 1, 1, "-1 is out of range"),
    ("fn (%a: floaty) { %a }", 1, 9, "floaty is no dtype"),
    ("fn (%a: int8x4) { %a }", 1, 9, "the dtype int8x4 is a vector"),
    ("fn (%a: Tensor[(-1), int8]) { %a }", 1, 17, "-1 is out of range"),
    ("let x = 1; x", 1, 5, "found 'x'; expected %name"),
    ("let @x = 1; x", 1, 5, "found '@x'; expected %name"),
    ("1 + nn.conv2(1, 2)", 1, 5, "No conversion of the Relay operator 'nn.conv2'. Similar are"),
    ("nn.softmax(1, axes=2)", 1, 1, "nn.softmax: unknown attributes ['axes']"),
    ("1;\n zeros(shape=[1])", 2, 2, "missing ['dtype']"),
    # What Relax does not have.
    ("fn (%a: List[int32]) { %a }", 1, 9, "Relax has neither; use tuples"),
    ("fn [A](%a: int32) { %a }", 1, 5, "Write one function for each type"),
    ("match (1) { _ => 1 }", 1, 1, "matching of algebraic data types has no counterpart"),
    ("1 + match? (1) { _ => 1 }", 1, 5, "matching of algebraic data types"),
    ("ref(1)", 1, 1, "a reference has no counterpart in Relax"),
    ("%0 = 1;\nref_read(%0)", 2, 1, "a reference has no counterpart"),
    ("ref_write(1, 2)", 1, 1, "Pass and return the value instead"),
    ("fn (%a: ref(int32)) { %a }", 1, 9, "a reference has no counterpart"),
    ("type List[A] { Nil }", 1, 1, "an algebraic data type has no counterpart in Relax"),
    ("extern type T", 1, 1, "an external type has no counterpart"),
]

# (module, line, column, a part of the message)
REFUSED_MODULES = [
    ("def @main() { 1 }\ntype List[A] { Nil }", 2, 1, "an algebraic data type"),
    ("def @main() { @f(1) }", 1, 15, "@f is called and not defined; the module has ['main']"),
    ("def @main() { 1 }\ndef @main() { 2 }", 2, 5, "two functions have the name @main"),
    ("def @f() { %0 = 1; %0 }\ndef @main() { %0 }", 2, 15, "%0 is not defined here"),
    ("def @main[A](%a: A) { %a }", 1, 11, "a function with type parameters"),
    ("def @main() { 1 } 2", 1, 19, "found '2'; expected"),
    ("def @main() { meta[relay.Constant][0] }\n#[metadata]\nnone", 3, 1, "the metadata is no JSON"),
    ('def @main() { 1 }\n#[metadata]\n{"a": 1}', 2, 1, "not of nodes as TVM saves them"),
]


def error_of(read, text):
    with pytest.raises(RelayTextError) as caught:
        read(text)
    return caught.value


@pytest.mark.parametrize(("text", "line", "column", "message"), REFUSED)
def test_an_expression_is_refused(text, line, column, message):
    error = error_of(parse_expr, text) if text else error_of(parse, text)
    assert message in str(error)
    assert (error.line, error.column) == (line, column)


@pytest.mark.parametrize(("text", "line", "column", "message"), REFUSED_MODULES)
def test_a_module_is_refused(text, line, column, message):
    error = error_of(parse, VERSION + text)
    assert message in str(error)
    assert (error.line, error.column) == (line + 1, column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main() { 1 }", "the version of the format is missing"),
        ('#[version = "0.0.4"]\ndef @main() { 1 }', "the format has version 0.0.4"),
        ("v0.0.4\ndef @main() { 1 }", "the format has version 0.0.4"),
    ],
)
def test_another_version_is_refused(text, message):
    error = error_of(parse, text)
    assert message in str(error) and error.line == 1


def test_an_error_shows_the_line_with_a_caret():
    with pytest.raises(RelayTextError) as caught:
        parse(VERSION + "def @main(%x: int32) {\n\tadd(%x, %y)\n}", source_name="net.relay")
    first, line, caret = str(caught.value).split("\n")
    assert first.startswith("net.relay:3:10: %y is not defined here.")
    assert line == "    \tadd(%x, %y)"
    assert caret == "    \t" + " " * 8 + "^"


def test_a_long_line_is_shown_around_the_place():
    error = error_of(parse_expr, f"({'1, ' * 500}%y{', 1' * 500})")
    _, line, caret = str(error).split("\n")
    assert len(line) < 140
    assert line[caret.index("^") :].startswith("%y")


def test_a_comment_moves_no_place():
    error = error_of(parse_expr, "/* one\n two */ add(/* ty=int32 */ 1, %y)")
    assert (error.line, error.column) == (2, 31)


def test_errors_are_errors_of_the_front_end():
    assert issubclass(RelayTextError, FrontendError)
    with pytest.raises(FrontendError, match="A Relay text is a str, not a bytes"):
        parse(b"")


def test_a_module_is_no_expression():
    error = error_of(parse_expr, VERSION + "def @main() { 1 }")
    assert "Use parse" in str(error)
