"""Writing ONNX networks node by node, with random weights that keep activations in range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 14


class Builder:
    """A network without batch norms: they are folded before inference.

    Args:
        size: height and width of the input `data`, (1, 3, size, size).
        shape: of another input than an image: (1, C, ...).
        seed: of the weights.
    """

    def __init__(self, *, size: int = 224, shape: tuple[int, ...] | None = None, seed: int = 0):
        self.shape = shape or (1, 3, size, size)
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._channels = {"data": self.shape[1]}

    def channels(self, tensor: str) -> int:
        """Channels of a tensor."""
        return self._channels[tensor]

    def conv(
        self,
        x: str,
        outputs: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        groups: int = 1,
        padded: bool = True,
        activation: str | None = "Relu",
    ) -> str:
        """A convolution with bias, and what follows it; padded, it keeps the size."""
        window = (kernel, kernel) if isinstance(kernel, int) else kernel
        before = [(size - 1) // 2 if padded else 0 for size in window]
        after = [size // 2 if padded else 0 for size in window]
        inputs = self._channels[x] // groups
        spread = np.sqrt(2 / (inputs * math.prod(window)))
        weight = self._constant(self._rng.normal(0, spread, (outputs, inputs, *window)))
        bias = self._constant(self._rng.normal(0, 0.1, outputs))
        y = self._node(
            "Conv",
            [x, weight, bias],
            outputs,
            kernel_shape=window,
            strides=[stride, stride],
            pads=before + after,
            group=groups,
        )
        return self.activate(y, activation)

    def activate(self, x: str, activation: str | None) -> str:
        """An element-wise function; "Relu6" is a clip."""
        if activation is None:
            return x
        if activation == "Relu6":
            limits = [self._constant(np.float32(limit)) for limit in (0, 6)]
            return self._node("Clip", [x, *limits], self._channels[x])
        return self._node(activation, [x], self._channels[x])

    def add(self, left: str, right: str, activation: str | None = None) -> str:
        """A residual sum."""
        return self.activate(self._node("Add", [left, right], self._channels[left]), activation)

    def multiply(self, left: str, right: str) -> str:
        """A product; `right` may have one value a channel."""
        return self._node("Mul", [left, right], self._channels[left])

    def concat(self, *parts: str) -> str:
        """Channels of all parts."""
        total = sum(self._channels[part] for part in parts)
        return self._node("Concat", list(parts), total, axis=1)

    def pool(self, x: str, kind: str, kernel: int, stride: int, *, padded: bool = True) -> str:
        """A "Max" or "Average" pool; padded, averages count zeros."""
        pads = [kernel // 2 if padded else 0] * 4
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
        counts = {"count_include_pad": 1} if kind == "Average" and padded else {}
        return self._node(f"{kind}Pool", [x], self._channels[x], **window, **counts)

    def global_pool(self, x: str) -> str:
        """The mean of each channel, (1, C, 1, 1)."""
        return self._node("GlobalAveragePool", [x], self._channels[x])

    def classify(self, x: str, classes: int = 1000) -> str:
        """Global pool and a dense layer: (1, classes)."""
        return self.dense(self._node("Flatten", [self.global_pool(x)], self._channels[x]), classes)

    def dense(self, x: str, outputs: int, activation: str | None = None) -> str:
        """A dense layer with bias on (1, I), and what follows it."""
        inputs = self._channels[x]
        weight = self._constant(self._rng.normal(0, np.sqrt(1 / inputs), (inputs, outputs)))
        bias = self._constant(self._rng.normal(0, 0.1, outputs))
        return self.activate(self._node("Gemm", [x, weight, bias], outputs), activation)

    def model(self, result: str) -> onnx.ModelProto:
        """The network that computes `result`."""
        data = helper.make_tensor_value_info("data", TensorProto.FLOAT, self.shape)
        output = helper.make_tensor_value_info(
            result, TensorProto.FLOAT, (1, self._channels[result])
        )
        graph = helper.make_graph(self._nodes, "zoo", [data], [output], self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model

    def _constant(self, array: Any) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array, "float32"), name))
        return name

    def _node(self, operator: str, inputs: list[str], channels: int, **attrs: Any) -> str:
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name=name, **attrs))
        self._channels[name] = channels
        return name
