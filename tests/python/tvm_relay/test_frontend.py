"""Relay through the front door: text files with their parameters, and Python objects."""

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_quant
from plain_tvm import run
from tvm_quant.errors import ConfigError, FrontendError
from tvm_quant.frontend.plugins import GROUP, FrontendTable
from tvm_relay.frontend import FRONTEND
from tvm_relay.text import parse, save_param_dict

TEXT = """#[version = "0.0.5"]
def @main(%data: Tensor[(2, 3, 6, 6), float32], %w: Tensor[(4, 3, 3, 3), float32],
          %b.0: Tensor[(4), float32]) -> Tensor[(2, 4, 4, 4), float32] {
  %0 = nn.conv2d(%data, %w, padding=[0, 0, 0, 0], channels=4, kernel_size=[3, 3]);
  %1 = nn.bias_add(%0, %b.0);
  nn.relu(%1)
}
"""
RNG = np.random.default_rng(0)
PARAMS = {
    "w": RNG.normal(0, 0.3, (4, 3, 3, 3)).astype("float32"),
    "b.0": RNG.normal(0, 0.3, 4).astype("float32"),
}
DATA = RNG.normal(size=(2, 3, 6, 6)).astype("float32")


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The row, as an installed package brings it, whatever is installed here."""
    table = FrontendTable([*tvm_quant.frontend._ROWS, FRONTEND])
    monkeypatch.setattr(tvm_quant.frontend, "FRONTENDS", table)


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "net.relay"
    path.write_text(TEXT)
    return path


def save_params(path, params=PARAMS):
    path.write_bytes(save_param_dict(params))
    return path


def expected(data=DATA):
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), (2, 3))
    sums = np.einsum("nihwkl,oikl->nohw", windows, PARAMS["w"])
    return np.maximum(sums + PARAMS["b.0"][:, None, None], 0)


def check(mod, params):
    assert params == {}
    assert [str(p.name) for p in mod["main"].params] == ["data"]
    (got,) = run(mod, DATA)
    np.testing.assert_allclose(got, expected(), rtol=1e-4, atol=1e-5)


def test_weights_come_from_a_file(network, tmp_path):
    check(*tvm_quant.load(network, params=save_params(tmp_path / "weights.bin")))


def test_weights_come_from_the_file_beside_the_text(network):
    save_params(network.with_suffix(".params"))
    check(*tvm_quant.load(str(network)))


def test_weights_come_from_a_mapping(network):
    wrapped = {name: tvm.runtime.tensor(value) for name, value in PARAMS.items()}
    check(*tvm_quant.load(network, params=wrapped))


def test_a_module_and_its_weights_are_a_pair():
    mod = parse(TEXT)
    check(*tvm_quant.load((mod, PARAMS)))
    check(*tvm_quant.load((mod["main"], PARAMS)))


def test_without_weights_they_are_inputs(network):
    mod, params = tvm_quant.load(network)
    assert [str(p.name) for p in mod["main"].params] == ["data", "w", "b.0"] and params == {}


def test_weights_that_nothing_reads_are_left_aside(network):
    check(*tvm_quant.load(network, params={**PARAMS, "unused": np.zeros(3)}))


def test_scales_that_come_apart_are_constants(tmp_path):
    path = tmp_path / "quantized.relay"
    path.write_text(
        '#[version = "0.0.5"]\ndef @main(%data: Tensor[(2, 3, 6, 6), float32], %s: float32, '
        '%z: int32) { %0 = qnn.quantize(%data, %s, %z, out_dtype="uint8"); '
        "qnn.dequantize(%0, %s, %z) }"
    )
    mod, _ = tvm_quant.load(path, params={"s": np.float32(0.1), "z": np.int32(100)})
    (got,) = run(mod, DATA)
    np.testing.assert_allclose(got, np.round(DATA / np.float32(0.1)) * 0.1, atol=1e-5)


def test_inputs_take_other_shapes(network):
    mod, _ = tvm_quant.load(network, params=PARAMS, shapes={"data": (1, 3, 8, 8)})
    data = RNG.normal(size=(1, 3, 8, 8)).astype("float32")
    (got,) = run(mod, data)
    np.testing.assert_allclose(got, expected(data), rtol=1e-4, atol=1e-5)
    assert isinstance(mod["main"], relax.Function)


def test_a_text_is_quantized(network):
    save_params(network.with_suffix(".params"))
    mod, params = tvm_quant.load(network)
    quantized = tvm_quant.quantize(mod, params, [{"data": DATA}])
    (got,) = run(quantized, DATA)
    assert "uint8" in quantized.script()
    assert np.linalg.norm(got - expected()) / np.linalg.norm(expected()) < 0.02


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"w": np.zeros((4, 3, 3), "float32")}, "'w' is float32 of shape"),
        ({"w": np.zeros((4, 3, 3, 3), "int8")}, "'w' is int8 of shape"),
        ({"w": "text"}, "'w' is <U4 of shape"),
        ("nowhere.params", "No such file of parameters: nowhere.params"),
    ],
)
def test_weights_that_do_not_fit_are_refused(network, params, message):
    with pytest.raises(FrontendError, match=message):
        tvm_quant.load(network, params=params)


def test_a_damaged_file_of_weights_is_named(network, tmp_path):
    path = tmp_path / "w.params"
    path.write_bytes(save_param_dict(PARAMS)[:100])
    with pytest.raises(FrontendError, match=r"w\.params: This parameter file is cut short"):
        tvm_quant.load(network, params=path)


def test_an_error_names_file_line_and_column(network):
    network.write_text(TEXT.replace("nn.relu(%1)", "nn.rely(%1)"))
    with pytest.raises(FrontendError, match=r"net\.relay:6:3: No conversion .*'nn\.rely'"):
        tvm_quant.load(network)


def test_operands_that_do_not_fit_are_located(network):
    network.write_text(TEXT.replace("%w: Tensor[(4, 3,", "%w: Tensor[(4, 5,"))
    with pytest.raises(FrontendError, match=r"net\.relay:4:8: nn\.conv2d"):
        tvm_quant.load(network)


def test_a_file_that_is_no_text_is_refused(network):
    network.write_bytes(b"\x80\x81\xfe")
    with pytest.raises(FrontendError, match="is no text"):
        tvm_quant.load(network)


def test_shapes_of_unknown_inputs_are_refused(network):
    with pytest.raises(FrontendError, match=r"shapes name \['x'\]"):
        tvm_quant.load(network, shapes={"x": (1,)})


def test_a_format_with_its_weights_inside_takes_no_params(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match="the format 'onnx' brings its weights itself"):
        tvm_quant.load(path, params={})


def test_the_package_announces_the_row():
    tomllib = pytest.importorskip("tomllib")
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"][GROUP] == {"relay": "tvm_relay.frontend:FRONTEND"}
