"""`import` and `export`: the ways to and from other tools."""

import numpy as np
import onnx
import pytest

from onnx_models import model, node
from quantized_models import grid, quantizer
from tvm_quant import Runner
from tvm_quant.artifact import Artifact
from tvm_quant.ir import bindings, op_name


@pytest.fixture
def exported(invoke, artifact, tmp_path):
    """The quantized network as ONNX."""
    path = tmp_path / "exported.onnx"
    result = invoke("export", artifact, "-o", path)
    assert result.exit_code == 0, result.output
    assert f"wrote {path}" in result.stdout.replace("\n", "")
    return path


def test_a_network_goes_out_and_comes_in_again(invoke, artifact, exported, tmp_path):
    """What was exported is imported as the same integers, but for those of residual sums."""
    path = tmp_path / "imported.tvmq"
    result = invoke("import", exported, "-o", path)
    assert result.exit_code == 0, result.output
    assert "nodes run on integers" in result.stdout
    ours, again = Artifact.load(artifact), Artifact.load(path)
    assert again.provenance.source == str(exported)
    image = np.random.default_rng(0).normal(size=(4, 1, 8, 8)).astype("float32")
    results = [Runner(one.module).run({"image": image})[0] for one in (ours, again)]
    np.testing.assert_allclose(results[1], results[0], atol=2e-2)
    assert {op_name(b.value) for b in bindings(again.module["main"])} >= {"relax.nn.conv2d"}
    assert activation_scales(again) == activation_scales(ours)


def activation_scales(artifact):
    return {tuple(row.scale) for row in artifact.table if row.kind == "activation"}


def test_the_exported_file_is_a_valid_model(exported):
    loaded = onnx.load(exported)
    onnx.checker.check_model(loaded, full_check=True)
    assert {"QuantizeLinear", "DequantizeLinear"} <= {n.op_type for n in loaded.graph.node}


def test_import_says_what_stays_in_float(invoke, tmp_path):
    source, output = tmp_path / "net.onnx", tmp_path / "net.tvmq"
    nodes = [quantizer("x", output="q"), node("Erf", ["q"], "e"), node("Softmax", ["e"], "y")]
    onnx.save(model(nodes, {"x": (2, 3)}, grid(0.25)), source)
    result = invoke("import", source, "-o", output, "--explain")
    assert result.exit_code == 0, result.output
    assert "no integer form of this operator" in result.stdout
    assert Artifact.load(output).table[-1].reason == "no integer form of this operator"


def test_a_float_network_is_not_imported(refused, small, tmp_path):
    refused(
        "import",
        small.model,
        "-o",
        tmp_path / "a.tvmq",
        message="has no quantizers: it is a float network. Calibrate it on samples with tvm-quant",
    )


def test_a_rounding_is_for_formats_that_have_one(refused, small, tmp_path):
    refused(
        *("import", small.model, "-o", tmp_path / "a.tvmq", "--rounding", "builtin"),
        message="rounding is 'builtin'; expected one of exact, onnxruntime",
    )


def test_a_slim_file_is_not_exported(refused, everything, tmp_path):
    refused("export", everything.path, "-o", tmp_path / "a.onnx", message="written with --slim")
