"""The command line on a small network."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

from tvm_quant.cli import app


@pytest.fixture(scope="session")
def invoke():
    """`invoke("quantize", ...)` runs a command in this process."""

    def run(*arguments: object):
        return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})

    return run


@pytest.fixture
def refused(invoke):
    """`refused(..., message=...)` expects exit code 1 and one line that holds `message`."""

    def check(*arguments: object, message: str) -> None:
        result = invoke(*arguments)
        assert result.exit_code == 1, result.output
        assert isinstance(result.exception, SystemExit)
        lines = result.stderr.strip().splitlines()
        assert lines[-1].startswith("error: ")
        assert message in lines[-1]
        assert "Traceback" not in result.output

    return check


def write_model(path: Path) -> None:
    """conv, relu, conv, relu, mean, dense, softmax; input "image", (N, 1, 8, 8)."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(0, 0.4, (8, 1, 3, 3)),
        "b1": rng.normal(0, 0.1, 8),
        "w2": rng.normal(0, 0.2, (16, 8, 3, 3)),
        "w3": rng.normal(0, 1.0, (16, 5)),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], "stem.conv", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "stem.relu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "body.conv", strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"], "body.relu"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "w3"], ["d"], "classifier"),
        helper.make_node("Softmax", ["d"], ["scores"], "softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 5])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> SimpleNamespace:
    """Files: the network, data to calibrate with, and data labelled by the float network."""
    folder = tmp_path_factory.mktemp("small")
    model = folder / "small.onnx"
    write_model(model)
    images = np.random.default_rng(1).normal(size=(56, 1, 8, 8)).astype(np.float32)
    (scores,) = ReferenceEvaluator(str(model)).run(None, {"image": images[32:]})
    np.savez(folder / "calibration.npz", image=images[:32])
    np.savez(folder / "evaluation.npz", image=images[32:], label=scores.argmax(1))
    return SimpleNamespace(
        model=model,
        calibration=folder / "calibration.npz",
        evaluation=folder / "evaluation.npz",
        scores=scores,
    )


@pytest.fixture(scope="session")
def artifact(invoke, small, tmp_path_factory) -> Path:
    """The network, quantized by the command line as it comes."""
    path = tmp_path_factory.mktemp("artifact") / "small.tvmq"
    result = invoke("quantize", small.model, "--data", small.calibration, "-o", path)
    assert result.exit_code == 0, result.output
    return path


OPTIONS = {
    "--calibrate": "minmax",
    "--weights": "mse",
    "--hardware": "generic",
    "--preset": "performance",
    "--bias-correction": "fast",
    "--limit": "24",
    "--skip": "classifier",
}
SETTINGS = ["--set", "profile_chunk=1", "--set", "nbit_activation=7"]


@pytest.fixture(scope="session")
def everything(invoke, small, tmp_path_factory) -> SimpleNamespace:
    """The network, quantized with every option that leaves a trace."""
    folder = tmp_path_factory.mktemp("everything")
    config = folder / "config.yaml"
    config.write_text("activation_estimator: mse\nnbit_weight: 7\nskip: [stem.conv]\n")
    found = SimpleNamespace(
        path=folder / "small.tvmq",
        stats=folder / "stats.npz",
        ir=folder / "ir",
        options=["--config", config, *chain.from_iterable(OPTIONS.items()), *SETTINGS],
    )
    more = ["--save-stats", found.stats, "--dump-ir", found.ir, "--explain", "--slim"]
    arguments = ["quantize", small.model, "--data", small.calibration, "-o", found.path]
    found.result = invoke(*arguments, *found.options, *more)
    assert found.result.exit_code == 0, found.result.output
    return found
