"""Prepare on real networks: the contract holds, the results are those of ONNX Runtime."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm

from onnx_models import assert_close, onnxruntime_results, results, samples
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, node_name, op_name
from tvm_quant.transform.prepare import Prepare, verify_prepared

# Operators that remain in each network, and the scale of its inputs.
CONVOLUTIONAL = {"nn.conv2d", "add", "nn.relu"}
NETWORKS = {
    "cifar10/resnet20": (
        CONVOLUTIONAL | {"strided_slice", "nn.pad", "mean", "reshape", "matmul"},
        1,
    ),
    "cifar10/resnet8_mlperf_tiny": (
        CONVOLUTIONAL | {"nn.avg_pool2d", "reshape", "matmul", "nn.softmax"},
        50,
    ),
    "tiny/vww_mobilenetv1_025_96": (
        CONVOLUTIONAL | {"nn.avg_pool2d", "reshape", "matmul", "nn.softmax"},
        1,
    ),
    "audio/bc_resnet_2": (CONVOLUTIONAL | {"multiply", "sigmoid", "mean", "reshape"}, 1),
    "imagenet/squeezenet1.1": (
        CONVOLUTIONAL | {"nn.max_pool2d", "concat", "mean", "reshape"},
        1,
    ),
    "imagenet/mobilenetv2_refit": (
        {"nn.conv2d", "add", "clip", "mean", "reshape", "matmul"},
        1,
    ),
    "detect/fastestdet_352": (
        CONVOLUTIONAL
        | {"nn.max_pool2d", "concat", "reshape", "permute_dims", "strided_slice", "squeeze"}
        | {"image.resize2d", "nn.avg_pool2d", "sigmoid", "nn.softmax"},
        1,
    ),
    "detect/yunet_n_320": (
        CONVOLUTIONAL | {"nn.max_pool2d", "image.resize2d", "permute_dims", "reshape", "sigmoid"},
        100,
    ),
    "qonnx/mnist-conv/model": (
        CONVOLUTIONAL | {"nn.max_pool2d", "reshape", "matmul"},
        100,
    ),
}
EDGE_MODELS = [
    "concat_1_vs_100",
    "conv1d",
    "convtranspose_group",
    "dead_channel",
    "if_subgraph",
    "shared_weight_bias",
    "silu_hardswish",
    "tiny_w_big_bias",
    "transformer_block",
]


@pytest.fixture(scope="module")
def edge(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the models with traps, written by the tool that comes with the shared data."""
    folder = tmp_path_factory.mktemp("edge")
    subprocess.run([sys.executable, shared / "tools/edge_models.py", folder], check=True)
    return folder


def check(path: Path, scale: float = 1, limit: float = 1e-4) -> set[str]:
    """Prepare a model, check the contract, the names and the results; the operators that remain."""
    source = onnx.load(path)
    mod = Prepare()(load(path)[0])
    verify_prepared(mod)
    tvm.ir.assert_structural_equal(Prepare()(mod), mod)
    assert weighted_nodes(source) <= named_nodes(mod)
    feeds = {k: v * scale if v.dtype == np.float32 else v for k, v in samples(source).items()}
    assert_close(results(mod, feeds), onnxruntime_results(source, feeds), limit)
    operators = {str(op_name(b.value)) for b in bindings(mod["main"]) if op_name(b.value)}
    return {name.removeprefix("relax.") for name in operators}


def weighted_nodes(source: onnx.ModelProto) -> set[str]:
    """Names of the layers of a model, as a user knows them."""
    layers = ("Conv", "ConvTranspose", "Gemm", "MatMul")
    return {n.name or n.output[0] for n in source.graph.node if n.op_type in layers}


def named_nodes(mod: tvm.IRModule) -> set[str]:
    func = mod["main"]
    return {node_name(func, binding.var) for binding in bindings(func)}


@pytest.mark.parametrize("network", NETWORKS)
def test_a_real_network_reaches_canonical_form_and_computes_the_same(shared, network):
    operators, scale = NETWORKS[network]
    assert check(shared / f"models/{network}.onnx", scale) == operators


@pytest.mark.parametrize("name", EDGE_MODELS)
def test_a_model_with_traps_reaches_canonical_form_and_computes_the_same(edge, name):
    assert "call_tir" not in check(edge / name / "model.onnx")


def test_weights_that_two_layers_share_are_one_constant(edge):
    mod = Prepare()(load(edge / "shared_weight_bias/model.onnx")[0])
    calls = [b.value for b in bindings(mod["main"]) if op_name(b.value) == "relax.nn.conv2d"]
    assert calls[0].args[1].same_as(calls[1].args[1])


@pytest.mark.parametrize("depth", [32, 44, 56])
def test_deep_residual_networks_reach_canonical_form(shared, depth):
    mod = Prepare()(load(shared / f"models/cifar10/resnet{depth}.onnx")[0])
    verify_prepared(mod)
    convolutions = [b for b in bindings(mod["main"]) if op_name(b.value) == "relax.nn.conv2d"]
    assert len(convolutions) == depth - 1
