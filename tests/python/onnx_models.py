"""Small ONNX models, and the comparison of what a front end makes of them with ONNX Runtime."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from tvm import IRModule, relax

from plain_tvm import run
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, op_name

Arrays = Mapping[str, Any]


def node(operator: str, inputs: Sequence[str], output: str = "y", **attributes: Any) -> NodeProto:
    """A node with one output, without a name."""
    return helper.make_node(operator, inputs, [output], **attributes)


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[Any]],
    weights: Arrays | None = None,
    *,
    opset: int = 17,
    outputs: Sequence[str] | None = None,
) -> ModelProto:
    """A model of float inputs, {name: shape}; a shape that starts with "int64" makes them int64."""
    infos = []
    for name, shape in inputs.items():
        integers = bool(shape) and shape[0] == "int64"
        kind = TensorProto.INT64 if integers else TensorProto.FLOAT
        infos.append(helper.make_tensor_value_info(name, kind, shape[1:] if integers else shape))
    names = outputs or [name for n in nodes[-1:] for name in n.output]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", infos, results, constants)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def samples(source: ModelProto, *, batch: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of a model; every open dimension is `batch`."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in source.graph.initializer}
    feeds = {}
    for value in source.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        shape = [dim.dim_value or batch for dim in tensor.shape.dim]
        if tensor.elem_type == TensorProto.INT64:
            feeds[value.name] = rng.integers(0, 5, shape)
        else:
            feeds[value.name] = rng.normal(size=shape).astype(np.float32)
    return feeds


def onnxruntime_results(source: ModelProto, feeds: Arrays) -> list[np.ndarray]:
    """What ONNX Runtime computes."""
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def results(mod: IRModule, feeds: Arrays) -> list[np.ndarray]:
    """What the unscheduled build of `main` computes."""
    return run(mod, *(feeds[str(param.name)] for param in mod["main"].params))


def assert_close(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], limit: float) -> None:
    """Every output within `limit` of its largest value."""
    assert [g.shape for g in got] == [w.shape for w in wanted]
    for index, (g, w) in enumerate(zip(got, wanted, strict=True)):
        error = np.max(np.abs(g - w)) / max(np.max(np.abs(w)), 1e-30)
        assert error <= limit, f"output {index} differs by {error:.1e} of its largest value"


def loads_like_onnxruntime(source: ModelProto, limit: float = 1e-5) -> set[str]:
    """Load a model, compare its results, and return the operators it consists of."""
    feeds = samples(source)
    mod, params = load(source)
    assert params == {}
    assert_close(results(mod, feeds), onnxruntime_results(source, feeds), limit)
    return operators(mod)


def operators(mod: IRModule) -> set[str]:
    """Operators that `main` calls, without "relax."."""
    calls = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    return {str(op_name(call)).removeprefix("relax.") for call in calls}
