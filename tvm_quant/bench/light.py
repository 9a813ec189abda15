"""The graphs of well-known networks that come with the onnx package, with random weights.

In the package, every weight is a `ConstantOfShape`. Here they are drawn from one generator:
He-scaled weights of layers, batch norms near identity, small biases.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

Array = npt.NDArray[Any]

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

#: {name: file in the package}
LIGHT = {path.stem: path for path in sorted(FOLDER.glob("light_*.onnx"))}

#: {(operator, port) that reads a vector: (standard deviation, mean)}; others are biases.
_VECTORS = {
    ("BatchNormalization", 1): (0.2, 1.0),
    ("BatchNormalization", 2): (0.2, 0.0),
    ("BatchNormalization", 3): (0.2, 0.0),
    ("Mul", 1): (0.2, 1.0),
    ("Add", 1): (0.2, 0.0),
}
_VARIANCE = ("BatchNormalization", 4)


def light(name: str) -> onnx.ModelProto:
    """A network of `LIGHT` with its weights as initializers."""
    model = onnx.load(LIGHT[name])
    graph = model.graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    rng = np.random.default_rng(0)
    weights = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    inputs = [value for value in graph.input if value.name not in stored]
    for node in weights:
        shape = tuple(int(size) for size in stored.pop(node.input[0]))
        stored[node.output[0]] = _drawn(rng, shape, _reader(graph, node.output[0]))
    for field in (graph.node, graph.input, graph.initializer):
        del field[:]
    graph.node.extend(kept)
    graph.input.extend(inputs)
    graph.initializer.extend(numpy_helper.from_array(value, n) for n, value in stored.items())
    return model


def _reader(graph: onnx.GraphProto, name: str) -> tuple[str, int]:
    """Operator and port that first read a tensor, behind what only adds axes."""
    for node in graph.node:
        if name in node.input:
            if node.op_type == "Unsqueeze":
                return _reader(graph, node.output[0])
            return node.op_type, list(node.input).index(name)
    return "", 0


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], reader: tuple[str, int]) -> Array:
    if reader == _VARIANCE:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) > 1:
        deviation, mean = (2.0 / math.prod(shape[1:])) ** 0.5, 0.0
    else:
        deviation, mean = _VECTORS.get(reader, (0.1, 0.0))
    return rng.normal(mean, deviation, shape).astype(np.float32)
