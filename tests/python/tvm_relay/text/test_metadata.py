import base64
import json

import numpy as np
import pytest

from tvm_relay.expr import Call, Constant, GlobalVar, Op, const
from tvm_relay.structural import assert_structural_equal
from tvm_relay.text import RelayTextError, astext, parse, parse_expr
from tvm_relay.text.metadata import write_metadata
from tvm_relay.text.ndarray import write_tensor
from tvm_relay.ty import Any

VERSION = '#[version = "0.0.5"]\n'
ONE = base64.b64encode(write_tensor(np.float32([1.0]))).decode()


def text(body, lists, nodes, blobs=(ONE,)):
    """A program whose metadata maps types to lists of node numbers; nodes count from 3."""
    keys = list(lists)
    arrays = [{"type_key": "Array", "data": lists[key]} for key in keys]
    first = 2 + len(nodes)
    root = {
        "type_key": "Map",
        "keys": keys,
        "data": [first + i for i in range(len(keys))],
    }
    saved = {
        "root": 1,
        "nodes": [{"type_key": ""}, root, *nodes, *arrays],
        "b64ndarrays": list(blobs),
        "attrs": {"tvm_version": "0.16.dev0"},
    }
    return f"{VERSION}def @main(%x: float32) {{ {body} }}\n#[metadata]\n{json.dumps(saved)}"


def constant(blob="0"):
    return {"type_key": "relay.Constant", "attrs": {"data": blob, "span": "0"}}


def body(*args):
    return parse(text(*args))["main"].body


def test_a_constant_is_one_object_wherever_it_is_named():
    both = body(
        "(meta[relay.Constant][0], meta[relay.Constant][0])", {"relay.Constant": [2]}, [constant()]
    )
    assert both.fields[0] is both.fields[1]
    np.testing.assert_array_equal(both.fields[0].data, np.float32([1.0]))


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ({"type_key": "IntImm", "attrs": {"dtype": "int32", "value": "-7"}}, -7),
        ({"type_key": "FloatImm", "attrs": {"dtype": "float32", "value": "2.5"}}, 2.5),
        ({"type_key": "runtime.String", "repr_str": "NCHW"}, "NCHW"),
        ({"type_key": "runtime.String", "repr_b64": "AgAAAAAAAADDqQ=="}, "é"),
        ({"type_key": "runtime.String"}, ""),
        ({"type_key": "Array", "data": [0, 0]}, (None, None)),
        ({"type_key": "Array"}, ()),
    ],
)
def test_other_values_stand_as_attributes(node, value):
    function = body("fn (a=meta[K][0]) { () }", {"K": [2]}, [node])
    assert function.attrs.a == value


def test_a_dimension_may_stand_in_the_metadata():
    source = text(
        "%x",
        {"tir.Any": [2], "IntImm": [3]},
        [
            {"type_key": "tir.Any", "attrs": {"dtype": "int32"}},
            {"type_key": "IntImm", "attrs": {"dtype": "int64", "value": "4"}},
        ],
    ).replace("%x: float32", "%x: Tensor[(meta[tir.Any][0], meta[IntImm][0]), float32]")
    shape = parse(source)["main"].params[0].type_annotation.shape
    assert isinstance(shape[0], Any) and shape[1] == 4


def test_attributes_of_a_call_may_stand_in_the_metadata():
    node = {"type_key": "relay.attrs.CastHintAttrs", "attrs": {"dtype": "int8"}}
    call = body(
        "annotation.cast_hint(%x, meta[relay.attrs.CastHintAttrs][0])",
        {"relay.attrs.CastHintAttrs": [2]},
        [node],
    )
    assert call.attrs == {"dtype": "int8"} and len(call.args) == 1


# (body, lists, nodes, blobs, message)
DAMAGED = [
    ("meta[relay.Constant][1]", {"relay.Constant": [2]}, [constant()], (ONE,), "holds 1 objects"),
    ("meta[Other][0]", {"relay.Constant": [2]}, [constant()], (ONE,), "there is no Other"),
    ("meta[relay.Constant][0]", {"relay.Constant": [99]}, [], (ONE,), "node 99"),
    ("meta[relay.Constant][0]", {"relay.Constant": ["x"]}, [], (ONE,), "a reference to a node"),
    ("meta[relay.Constant][0]", {"relay.Constant": [2]}, [constant("5")], (ONE,), "tensor 5"),
    ("meta[relay.Constant][0]", {"relay.Constant": [2]}, [constant()], ("?",), "is no base64"),
    ("meta[relay.Constant][0]", {"relay.Constant": [2]}, [constant()], ("AAAA",), "cut short"),
    (
        "meta[relay.Constant][0]",
        {"relay.Constant": [2]},
        [{"type_key": "relay.Constant"}],
        (ONE,),
        "has no 'data'",
    ),
    (
        "meta[VirtualDevice][0]",
        {"VirtualDevice": [2]},
        [{"type_key": "VirtualDevice", "attrs": {}}],
        (ONE,),
        "is no constant",
    ),
    (
        "annotation.cast_hint(%x, meta[relay.attrs.A][0])",
        {"relay.attrs.A": [2]},
        [{"type_key": "relay.attrs.A", "attrs": {"axis": "1"}}],
        (ONE,),
        "are not read from metadata",
    ),
    (
        "(meta[relay.attrs.A][0], 1)",
        {"relay.attrs.A": [2]},
        [{"type_key": "relay.attrs.A", "attrs": {"dtype": "int8"}}],
        (ONE,),
        "can only stand last in a call",
    ),
]


@pytest.mark.parametrize(("body", "lists", "nodes", "blobs", "message"), DAMAGED)
def test_damaged_metadata_is_refused(body, lists, nodes, blobs, message):
    with pytest.raises(RelayTextError, match=message) as caught:
        parse(text(body, lists, nodes, blobs))
    assert caught.value.line == 2


def test_nodes_in_a_circle_are_refused():
    circle = {"type_key": "Map", "data": [3, 2]}
    with pytest.raises(RelayTextError, match=r"circle|keys that are no texts"):
        body("fn (a=meta[K][0]) { () }", {"K": [2]}, [circle, {"type_key": "Map", "data": [2, 2]}])


@pytest.mark.parametrize(
    "saved",
    [
        "[]",
        "1",
        '{"root": 1}',
        '{"root": 9, "nodes": []}',
        '{"root": "x", "nodes": []}',
        '{"root": 1, "nodes": 3}',
        '{"root": 1, "nodes": [{}, {"type_key": "Array"}]}',
        "",
    ],
)
def test_other_json_is_refused(saved):
    with pytest.raises(RelayTextError, match="metadata"):
        parse(f"{VERSION}def @main() {{ 1 }}\n#[metadata]\n{saved}")


def test_what_is_written_reads_back():
    weights = const(np.arange(6, dtype="int8").reshape(2, 3)), const(np.float64([1, 2]))
    expr = Call(GlobalVar("f"), (*weights, weights[0]), {"start": const([1.0])})
    read = parse_expr(astext(expr))
    assert_structural_equal(read, expr)
    assert read.args[0] is read.args[2]


def test_a_constant_is_written_once():
    weight = Constant(np.zeros((2, 2), "float32"))
    written = astext(Call(Op("add"), (weight, weight)))
    assert written.startswith(f"{VERSION}add(meta[relay.Constant][0], meta[relay.Constant][0])\n")
    assert written.endswith(write_metadata([weight]))


def test_metadata_may_be_left_out():
    weight = Constant(np.zeros((2, 2), "float32"))
    assert astext(weight, show_meta_data=False) == f"{VERSION}meta[relay.Constant][0]\n"
