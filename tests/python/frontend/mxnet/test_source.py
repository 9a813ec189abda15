"""What may be passed as a network of MXNet, and what is refused."""

import contextlib

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

import tvm_quant
from mxnet_models import node, params_bytes, symbol
from plain_tvm import run_one
from tvm_quant.errors import FrontendError
from tvm_quant.frontend.mxnet.importer import import_network
from tvm_quant.frontend.mxnet.source import Network
from tvm_quant.frontend.mxnet.symbol import parse_symbol
from tvm_quant.ir import node_name, tensor_shape

WEIGHT, BIAS = np.arange(6, dtype="float32").reshape(3, 2), np.ones(3, "float32")
PARAMS = {"arg:w": WEIGHT, "arg:b": BIAS}
TEXT = symbol([node("FullyConnected", ["data", "w", "b"], "fc", num_hidden=3)])
X = np.array([[1, 2]], "float32")
SHAPES = {"data": (1, 2)}


@pytest.fixture
def files(tmp_path):
    """A checkpoint of two epochs; the first has other weights."""
    (tmp_path / "net-symbol.json").write_text(TEXT)
    old = {name: array * 0 for name, array in PARAMS.items()}
    (tmp_path / "net-0000.params").write_bytes(params_bytes(old))
    (tmp_path / "net-0007.params").write_bytes(params_bytes(PARAMS))
    (tmp_path / "network-0009.params").write_bytes(params_bytes(old))
    return tmp_path


def test_parameters_are_found_beside_the_symbol_those_of_the_last_epoch(files):
    mod, params = tvm_quant.load(files / "net-symbol.json", shapes=SHAPES)
    assert params == {}
    np.testing.assert_array_equal(run_one(mod, X), X @ WEIGHT.T + BIAS)


def test_paths_and_mappings_may_come_as_a_tuple(files):
    path = files / "net-symbol.json"
    wanted, _ = tvm_quant.load(path, shapes=SHAPES)
    plain = {"w": WEIGHT, "b": BIAS.tolist()}
    for source in (
        (path, files / "net-0007.params"),
        (str(path), str(files / "net-0007.params")),
        (path, {"w": WEIGHT, "b": BIAS}),
        (path, {"w": WEIGHT}, {"b": BIAS}),
        (path, PARAMS),
    ):
        tvm.ir.assert_structural_equal(tvm_quant.load(source, shapes=SHAPES)[0], wanted)
    mod, _ = tvm_quant.load((path, {**plain, "b": np.float32(plain["b"])}), shapes=SHAPES)
    tvm.ir.assert_structural_equal(mod, wanted)


def test_example_inputs_say_shape_and_type(files):
    source = (files / "net-symbol.json", {})
    example = [np.ones((4, 2), "float16"), WEIGHT.astype("float16"), BIAS.astype("float16")]
    mod, _ = tvm_quant.load(source, example_inputs=example)
    types = [(str(p.name), str(p.ty.dtype)) for p in mod["main"].params]
    assert types == [("data", "float16"), ("w", "float16"), ("b", "float16")]


def test_example_inputs_of_float64_count_as_float32(files):
    mod, _ = tvm_quant.load(files / "net-symbol.json", example_inputs=[np.ones((4, 2))])
    assert str(mod["main"].params[0].ty.dtype) == "float32"


def test_names_of_nodes_are_recorded(files):
    mod, _ = tvm_quant.load(files / "net-symbol.json", shapes=SHAPES)
    bound = mod["main"].body.blocks[0].bindings
    assert {node_name(mod["main"], item.var) for item in bound} == {"fc", "gv"}


def test_a_shape_in_the_file_counts_unless_the_user_says_otherwise(tmp_path):
    text = TEXT.replace('"name": "data"', '"name": "data", "attrs": {"__shape__": "(5, 2)"}')
    (tmp_path / "net-symbol.json").write_text(text)
    source = (tmp_path / "net-symbol.json", PARAMS)
    assert tensor_shape(tvm_quant.load(source)[0]["main"].params[0]) == (5, 2)
    mod, _ = tvm_quant.load(source, shapes=SHAPES)
    assert tensor_shape(mod["main"].params[0]) == (1, 2)


@pytest.mark.parametrize(
    ("params", "shapes", "message"),
    [
        (PARAMS, None, r"No shape is known for 'data'.*shapes=\{\"data\""),
        ({"w": WEIGHT}, SHAPES, "No shape is known for 'b'.*has no value: pass the .params"),
        (PARAMS, {"date": (1, 2)}, "names 'date', which is no input.*Did you mean 'data'"),
        (PARAMS, {"w": (3, 2)}, "names 'w', which is no input"),
        (PARAMS, {"data": (1, 9)}, r"Cannot convert MXNet node 'fc' \(FullyConnected"),
        ({"w": object(), "b": BIAS}, SHAPES, "Parameter 'w' is a object"),
        (3, SHAPES, "The parameters are a int; expected the path"),
    ],
)
def test_what_does_not_fit_is_named(files, params, shapes, message):
    with pytest.raises(FrontendError, match=f"(?s){message}"):
        tvm_quant.load((files / "net-symbol.json", params), shapes=shapes)


def test_parameters_that_are_missing_are_asked_for(tmp_path):
    (tmp_path / "net-symbol.json").write_text(TEXT)
    with pytest.raises(FrontendError, match=r"No parameters beside .*expected net-0000\.params"):
        tvm_quant.load(tmp_path / "net-symbol.json", shapes=SHAPES)


def test_files_that_are_missing_or_no_text_are_named(files, tmp_path):
    with pytest.raises(FrontendError, match="No such model file"):
        tvm_quant.load(files / "none-symbol.json", shapes=SHAPES)
    with pytest.raises(FrontendError, match="Cannot read the symbol"):
        tvm_quant.load((files / "none-symbol.json", PARAMS), shapes=SHAPES)
    (tmp_path / "odd-symbol.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FrontendError, match="Cannot read the symbol"):
        tvm_quant.load((tmp_path / "odd-symbol.json", PARAMS), shapes=SHAPES)


def test_a_wrong_number_of_example_inputs_is_refused(files):
    with pytest.raises(FrontendError, match="2 example inputs for the 1 inputs"):
        tvm_quant.load(files / "net-symbol.json", example_inputs=[X, X])


NETWORK = symbol(
    [
        node("Convolution", ["data", "c", "d"], "conv", kernel=(2, 2), num_filter=3, pad=(1, 1)),
        node("Pooling", ["conv"], "pool", kernel=(2, 2), stride=(2, 2), pool_type="avg"),
        node("FullyConnected", ["pool", "w", "b"], "fc", num_hidden=3),
        node("SoftmaxOutput", ["fc", "label"], "loss"),
    ]
)
WEIGHTS = {
    "c": np.ones((3, 1, 2, 2), "float32"),
    "d": np.ones(3, "float32"),
    "w": np.ones((3, 12), "float32"),
    "b": np.ones(3, "float32"),
}


@given(st.integers(0, len(NETWORK) - 1), st.sampled_from('0123456789-,:"()[]{}xe '))
def test_any_character_of_a_symbol_may_be_wrong(position, character):
    text = NETWORK[:position] + character + NETWORK[position + 1 :]
    with contextlib.suppress(FrontendError):  # anything else is a failure
        graph = parse_symbol(text, "net-symbol.json")
        import_network(Network(graph=graph, params=WEIGHTS, shapes={"data": (1, 1, 4, 4)}))
