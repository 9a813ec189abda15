import json

import numpy as np
import onnx
import pytest

from onnx_models import node
from quantized_models import typed_model
from tvm_quant.bench.imported import compare, imported
from tvm_quant.errors import ConfigError

pytest.importorskip("onnxruntime", reason="compares with ONNX Runtime")


@pytest.fixture
def file(tmp_path):
    weights = {"s": np.float32(0.02), "zero": np.uint8(128)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "zero"], "q"),
        node("DequantizeLinear", ["q", "s", "zero"]),
    ]
    source = typed_model(nodes, {"x": ("float", (1, 8))}, weights, {"y": "float"})
    onnx.save(source, tmp_path / "pair.onnx")
    return tmp_path / "pair.onnx"


def test_outputs_and_latencies_of_both(file):
    result = compare(file, samples=3, rounds=1, threads=1)
    assert (result.network, result.runtime) == ("pair", "ONNX Runtime")
    assert (result.differing, result.elements) == (0, 24)
    assert result.ours.median > 0
    assert result.theirs.median > 0


def test_the_table_is_written(file, tmp_path):
    out = tmp_path / "out.json"
    imported([file], samples=1, rounds=1, threads=1, json=out, markdown=tmp_path / "out.md")
    assert json.loads(out.read_text())["results"][0]["network"] == "pair"
    assert "| pair | ONNX Runtime | 0 | 8 |" in (tmp_path / "out.md").read_text()


def test_files_without_a_runtime_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\.tflite, \.onnx"):
        imported([tmp_path / "net.pt2"], samples=1, rounds=1, threads=1)
