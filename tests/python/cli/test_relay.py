"""Relay texts on the command line, with their parameters in a file of TVM's own."""

import numpy as np
import pytest

import tvm_quant.frontend
from tvm_quant.artifact import Artifact
from tvm_quant.frontend.plugins import FrontendTable
from tvm_relay.frontend import FRONTEND
from tvm_relay.text import save_param_dict

TEXT = """#[version = "0.0.5"]
def @main(%image: Tensor[(1, 2, 8, 8), float32], %w: Tensor[(4, 2, 3, 3), float32]) {
  %0 = nn.conv2d(%image, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  nn.global_avg_pool2d(%1)
}
"""


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A folder with net.relay, weights.bin and calibration.npz."""
    table = FrontendTable([*tvm_quant.frontend._ROWS, FRONTEND])
    monkeypatch.setattr(tvm_quant.frontend, "FRONTENDS", table)
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 0.3, (4, 2, 3, 3)).astype(np.float32)
    (tmp_path / "net.relay").write_text(TEXT)
    (tmp_path / "weights.bin").write_bytes(save_param_dict({"w": weight}))
    images = rng.normal(size=(8, 2, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "calibration.npz", image=images)
    return tmp_path


def test_a_text_with_its_parameters_is_quantized(invoke, network):
    arguments = ("--params", network / "weights.bin", "--data", network / "calibration.npz")
    output = network / "net.tvmq"
    result = invoke("quantize", network / "net.relay", *arguments, "-o", output)
    assert result.exit_code == 0, result.output
    module = Artifact.load(output).module
    assert [str(param.name) for param in module["main"].params] == ["image"]


def test_an_error_in_the_text_is_shown_with_its_place(invoke, network):
    (network / "net.relay").write_text(TEXT.replace("%1)", "%2)"))
    result = invoke("quantize", network / "net.relay", "-o", network / "net.tvmq")
    assert result.exit_code == 1
    assert "net.relay:5:24: %2 is not defined here" in result.stderr
    assert "Traceback" not in result.output


def test_parameters_for_another_format_are_refused(refused, network, small):
    refused(
        *("quantize", small.model, "--params", network / "weights.bin"),
        *("--data", small.calibration, "-o", network / "net.tvmq"),
        message="a model of the format 'onnx' brings its weights itself",
    )
