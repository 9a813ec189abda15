"""A network that takes no time, as a row of the table."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_quant.bench.measure import Scale, Subject
from tvm_quant.bench.metrics import Top1
from tvm_quant.bench.places import Places
from tvm_quant.bench.samples import Column, InMemory, Samples
from tvm_quant.bench.workloads import Workload


def tiny_onnx():
    """conv + relu + global average pool + dense: "x", (1, 3, 6, 6), to 4 classes."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(0, 0.3, (8, 3, 3, 3)),
        "b": rng.normal(0, 0.1, 8),
        "d": rng.normal(0, 0.5, (8, 4)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "d"], ["y"], name="dense"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


def tiny_samples(count, seed):
    array = np.random.default_rng(seed).normal(size=(count, 3, 6, 6)).astype(np.float32)
    labels = np.arange(count) % 4
    return Samples.all_of({"x": Column(stored=InMemory(array))}, labels)


@pytest.fixture
def subject(tmp_path):
    onnx.save(tiny_onnx(), tmp_path / "tiny.onnx")
    row = Workload(
        name="tiny",
        model=lambda _places: tmp_path / "tiny.onnx",
        calibration=lambda _places: tiny_samples(12, 1),
        evaluation=lambda _places: tiny_samples(10, 2),
        metric=Top1(),
    )
    places = Places(shared=tmp_path, cache=tmp_path)
    return Subject(row, places, Scale(calibration=8, latency_rounds=2))
