"""Small ONNX models with quantizers, and what has to hold of what becomes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from tvm import IRModule, relax

from onnx_models import results
from qonnx_oracle import oracle_results
from tvm_quant import quantize
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, constant_value, op_name, producers
from tvm_quant.op import Role, role_of

QONNX = "qonnx.custom_op.general"

Arrays = Mapping[str, Any]


def custom(
    operator: str,
    inputs: Sequence[str],
    output: str = "y",
    *,
    domain: str = QONNX,
    **attributes: Any,
) -> NodeProto:
    """A node of another domain than the standard one."""
    return helper.make_node(operator, inputs, [output], domain=domain, **attributes)


def quantizer(data: str, output: str = "y", *, prefix: str = "q", **attributes: Any) -> NodeProto:
    """Quant with the parameters of `grid(prefix=...)`."""
    attributes = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"} | attributes
    inputs = [data, f"{prefix}_scale", f"{prefix}_zero", f"{prefix}_bits"]
    return custom("Quant", inputs, output, **attributes)


def grid(scale: Any, zero: Any = 0, bits: Any = 4, *, prefix: str = "q") -> dict[str, np.ndarray]:
    """Parameters of a quantizer, as initializers."""
    values = {"scale": scale, "zero": zero, "bits": bits}
    return {f"{prefix}_{name}": np.asarray(value, "float32") for name, value in values.items()}


def imports(source: ModelProto, **versions: int) -> ModelProto:
    """The model with more domains imported; `__` is a dot."""
    for domain, version in versions.items():
        source.opset_import.append(helper.make_opsetid(domain.replace("__", "."), version))
    return source


def typed_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[str, Sequence[Any]]],
    weights: Arrays,
    outputs: Mapping[str, str],
    *,
    opset: int = 21,
) -> ModelProto:
    """A model whose inputs, {name: (type, shape)}, and outputs, {name: type}, have any type."""
    infos = [
        helper.make_tensor_value_info(name, getattr(TensorProto, kind.upper()), shape)
        for name, (kind, shape) in inputs.items()
    ]
    ends = [
        helper.make_tensor_value_info(name, getattr(TensorProto, kind.upper()), None)
        for name, kind in outputs.items()
    ]
    constants = [
        value
        if isinstance(value, TensorProto)
        else numpy_helper.from_array(np.asarray(value), name)
        for name, value in weights.items()
    ]
    graph = helper.make_graph(list(nodes), "graph", infos, ends, constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def random_codes(rng: np.random.Generator, shape: Sequence[int], kind: str) -> np.ndarray:
    """Codes over the whole range of a type."""
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)


def random_weights(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Weights of int8 within +-64, for comparisons with ONNX Runtime on any CPU.

    Without four-byte dot products (VNNI) it adds two products of uint8 and int8 in 16 bits and
    saturates: 2 * 255 * 64 fits, 2 * 255 * 65 does not.
    """
    return rng.integers(-64, 64, shape, "int8", endpoint=True)


def simulated(source: ModelProto, **feeds: Any) -> list[np.ndarray]:
    """What the annotated graph computes in float."""
    return results(load(source)[0], feeds)


def integer(source: Any) -> IRModule:
    """The network on integers."""
    return quantize(load(source)[0])


def realized(source: ModelProto, **feeds: Any) -> list[np.ndarray]:
    """What the network computes on integers."""
    return results(integer(source), feeds)


def assert_means(source: ModelProto, limit: float = 1e-6, **feeds: Any) -> list[np.ndarray]:
    """Float and integers compute what the oracle does, within `limit` of the largest value."""
    expected = oracle_results(source, feeds)
    for got in (simulated(source, **feeds), realized(source, **feeds)):
        for g, w in zip(got, expected, strict=True):
            np.testing.assert_allclose(g, w, rtol=0, atol=limit * max(np.abs(w).max(), 1e-9))
    return expected


def onnxruntime_unoptimized(source: ModelProto, **feeds: Any) -> list[np.ndarray]:
    """What ONNX Runtime computes, node by node."""
    import pytest

    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1  # its sums depend on how threads share a product
    options.log_severity_level = 3
    return ort.InferenceSession(source.SerializeToString(), options).run(None, feeds)


def contractions(mod: IRModule) -> list[relax.Call]:
    """Convolutions and matrix products of `main`."""
    calls = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    return [call for call in calls if role_of(call) is Role.CONTRACTION]


def float_weights(mod: IRModule) -> list[str]:
    """Contractions whose weights are stored in float."""
    made = producers(mod["main"])
    return [
        str(op_name(call)) for call in contractions(mod) if _source(call.args[1], made) == "float32"
    ]


def float_contractions(mod: IRModule) -> list[str]:
    """Contractions that run in float."""
    return [str(op_name(c)) for c in contractions(mod) if str(c.ty.dtype) == "float32"]


def _source(value: relax.Expr, made: Mapping[relax.Var, relax.Expr]) -> str:
    """The type of the constant at the beginning of a chain of calls."""
    while constant_value(value) is None and isinstance(made.get(value), relax.Call):
        value = made[value].args[0]
    return "none" if constant_value(value) is None else str(value.ty.dtype)
