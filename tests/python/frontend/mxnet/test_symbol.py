"""The JSON text of a graph, of every version."""

import json

import pytest

from mxnet_models import node, symbol
from tvm_quant.errors import FrontendError
from tvm_quant.frontend.mxnet.attributes import Attributes
from tvm_quant.frontend.mxnet.converters.shape import new_shape
from tvm_quant.frontend.mxnet.symbol import parse_symbol

DENSE = [node("FullyConnected", ["data", "w", "b"], "fc", num_hidden=3)]


@pytest.mark.parametrize("key", ["attrs", "attr", "param"])
def test_attributes_stand_under_the_name_of_any_version(key):
    graph = parse_symbol(symbol(DENSE, key=key), "x")
    assert graph.nodes[-1].attributes.integer("num_hidden") == 3


def test_entries_may_have_two_numbers():
    text = symbol(DENSE).replace(", 0]", "]")
    assert parse_symbol(text, "x") == parse_symbol(symbol(DENSE), "x")


def test_the_oldest_batch_norms_get_their_statistics():
    nodes = [node("BatchNorm", ["data", "g", "b"], "bn"), node("relu", ["bn"])]
    graph = parse_symbol(symbol(nodes), "x")
    names = [item.name for item in graph.nodes]
    assert names == ["data", "g", "b", "bn_moving_mean", "bn_moving_var", "bn", "y"]
    assert [entry.node for entry in graph.nodes[5].inputs] == [0, 1, 2, 3, 4]
    assert [entry.node for entry in graph.nodes[6].inputs] == [5]
    assert graph.heads[0].node == 6


def test_labels_of_losses_are_no_inputs():
    graph = parse_symbol(symbol([*DENSE, node("SoftmaxOutput", ["fc", "label"])]), "x")
    assert [item.name for _, item in graph.needed()] == ["data", "w", "b", "fc", "y"]


def test_nodes_that_no_result_needs_are_left_out():
    graph = parse_symbol(symbol([*DENSE, node("relu", ["other"], "unused")], ["fc"]), "x")
    assert [item.name for _, item in graph.needed()] == ["data", "w", "b", "fc"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON text"),
        ("[]", "has no 'nodes' and 'heads'"),
        ('{"nodes": []}', "has no 'nodes' and 'heads'"),
        ('{"nodes": [], "heads": []}', "'heads' is empty"),
        ('{"nodes": [3], "heads": [[0, 0]]}', "not as MXNet writes it"),
        ('{"nodes": [{"op": "null"}], "heads": [[0, 0]]}', "not as MXNet writes it"),
        ('{"nodes": [], "heads": [[7, 0]]}', "a result is that of node 7, of 0"),
    ],
)
def test_damage_is_named(text, message):
    with pytest.raises(FrontendError, match=message):
        parse_symbol(text, "net-symbol.json")


def test_a_node_that_reads_a_later_one_is_refused():
    document = json.loads(symbol(DENSE))
    document["nodes"][3]["inputs"][0] = [3, 0, 0]
    with pytest.raises(FrontendError, match=r"node 3 \('fc'\) reads node 3"):
        parse_symbol(json.dumps(document), "net-symbol.json")


def test_attributes_are_read_as_any_version_writes_them():
    given = Attributes(
        {"a": "(3L, 3L)", "b": "[2,2]", "c": "7", "d": "True", "e": "0", "f": "None", "g": "1e-3"}
    )
    assert [given.sizes(name) for name in "abc"] == [(3, 3), (2, 2), (7,)]
    assert given.flag("d") and not given.flag("e") and given.flag("f", default=True)
    assert given.number("g") == 1e-3 and given.integer("c") == 7
    assert given.slots("x", (None, 1)) == (None, 1)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda a: a.integer("missing"), "'missing' is missing"),
        (lambda a: a.integer("half"), "'half' is '0.5'; expected a whole number"),
        (lambda a: a.flag("word"), "'word' is 'maybe'; expected True or False"),
        (lambda a: a.number("word"), "'word' is 'maybe'; expected numbers"),
        (lambda a: a.sizes("open"), "expected whole numbers"),
        (lambda a: a.sizes("half"), "expected whole numbers"),
    ],
)
def test_attributes_that_are_wrong_are_named(read, message):
    with pytest.raises(ValueError, match=message):
        read(Attributes({"half": "0.5", "word": "maybe", "open": "(1, None)"}))


@pytest.mark.parametrize(
    ("shape", "codes", "reverse", "wanted"),
    [
        ((2, 3, 4), (4, 0, 2), False, (4, 3, 2)),
        ((2, 3, 4), (6, 1, -1), False, (6, 1, 4)),
        ((2, 3, 4), (3, -1, 8), False, (3, 1, 8)),
        ((2, 3, 4), (-2,), False, (2, 3, 4)),
        ((2, 3, 4), (2, -2), False, (2, 3, 4)),
        ((2, 3, 4), (-2, 1, 1), False, (2, 3, 4, 1, 1)),
        ((2, 3, 4), (-3, 4), False, (6, 4)),
        ((2, 3, 4, 5), (-3, -3), False, (6, 20)),
        ((2, 3, 4), (0, -3), False, (2, 12)),
        ((2, 3, 4), (-3, -2), False, (6, 4)),
        ((2, 3, 4), (-4, 1, 2, -2), False, (1, 2, 3, 4)),
        ((2, 3, 4), (2, -4, -1, 3, -2), False, (2, 1, 3, 4)),
        ((10, 5, 4), (-1, 0), False, (40, 5)),
        ((10, 5, 4), (-1, 0), True, (50, 4)),
    ],
)
def test_codes_of_reshape(shape, codes, reverse, wanted):
    assert new_shape(shape, codes, reverse=reverse) == wanted


@pytest.mark.parametrize("codes", [(5, 5), (-1, -1), (-3, -3), (-4, 2), (-7,), (0, 0, 0, 0)])
def test_codes_of_reshape_that_do_not_fit_are_refused(codes):
    with pytest.raises(ValueError, match="shape"):
        new_shape((2, 3, 4), codes, reverse=False)
