"""A script for `tvm.relay`: networks, quantized in several modes, beside float; prints JSON.

The stack of old runs it as it is, ours through `python -m tvm_relay`: one source for both sides.
A network is one of `NETS` or an ONNX file.

    python relay_script.py TARGET MODES NETWORK ...
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES, REPEATS = 8, 20  # to calibrate, and timed runs
UNSEEN, UNSEEN_BY_FILES = 400, 16  # to judge by: `NETS` have few outputs, and take no time
LONGEST_S = 10.0  # of the repeats of a run together
MODES: dict[str, dict[str, Any]] = {
    "global_scale, power2": {"calibrate_mode": "global_scale", "weight_scale": "power2"},
    "kl_divergence, max": {"calibrate_mode": "kl_divergence", "weight_scale": "max"},
    "percentile, max": {"calibrate_mode": "percentile", "weight_scale": "max"},
}


class Net:
    """Layers with constants from one generator: He-scaled weights, batch norm near identity."""

    def __init__(self, relay: Any):
        self.relay = relay
        self.rng = np.random.RandomState(0)

    def constant(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Any:
        """A constant drawn from a normal distribution."""
        return self.relay.const((self.rng.randn(*shape) * scale + shift).astype("float32"))

    def data(self, *shape: int) -> Any:
        """The input."""
        return self.relay.var("data", shape=shape, dtype="float32")

    def conv(self, x: Any, i: int, o: int, k: int = 3, groups: int = 1, stride: int = 1) -> Any:
        """A convolution of `i` to `o` channels that keeps the size, without bias."""
        weight = self.constant(o, i // groups, k, k, scale=(2 * groups / (i * k * k)) ** 0.5)
        sizes = {"padding": (k // 2, k // 2), "strides": (stride, stride), "kernel_size": (k, k)}
        return self.relay.nn.conv2d(x, weight, channels=o, groups=groups, **sizes)

    def biased(self, x: Any, channels: int) -> Any:
        """With a bias along the channels."""
        return self.relay.nn.bias_add(x, self.constant(channels, scale=0.1))

    def norm(self, x: Any, channels: int) -> Any:
        """Batch norm."""
        gamma, beta, mean = (self.constant(channels, scale=0.2, shift=s) for s in (1.0, 0.0, 0.0))
        var = self.relay.const((self.rng.rand(channels) + 0.5).astype("float32"))
        return self.relay.nn.batch_norm(x, gamma, beta, mean, var)[0]

    def dense(self, x: Any, i: int, o: int) -> Any:
        """A dense layer with bias."""
        return self.biased(self.relay.nn.dense(x, self.constant(o, i, scale=i**-0.5)), o)

    def head(self, x: Any, channels: int) -> Any:
        """Global average, and ten classes."""
        pooled = self.relay.nn.batch_flatten(self.relay.nn.global_avg_pool2d(x))
        return self.dense(pooled, channels, 10)


def small_conv(net: Net) -> Any:
    """Three convolutions, a pool and a classifier."""
    nn = net.relay.nn
    y = nn.relu(net.biased(net.conv(net.data(1, 3, 32, 32), 3, 16), 16))
    y = nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2))
    y = nn.relu(net.biased(net.conv(y, 16, 32), 32))
    return net.head(nn.relu(net.biased(net.conv(y, 32, 32), 32)), 32)


def resnet_block(net: Net) -> Any:
    """Five convolutions with batch norm and two residual sums."""
    nn = net.relay.nn
    y = nn.relu(net.norm(net.conv(net.data(1, 3, 32, 32), 3, 32), 32))
    for _ in range(2):
        z = nn.relu(net.norm(net.conv(y, 32, 32), 32))
        y = nn.relu(net.relay.add(y, net.norm(net.conv(z, 32, 32), 32)))
    return net.head(y, 32)


def mobilenet_block(net: Net) -> Any:
    """An inverted residual with a depthwise convolution."""
    relay = net.relay
    y = relay.clip(net.norm(net.conv(net.data(1, 3, 32, 32), 3, 16, stride=2), 16), 0.0, 6.0)
    z = relay.clip(net.norm(net.conv(y, 16, 96, k=1), 96), 0.0, 6.0)
    z = relay.clip(net.norm(net.conv(z, 96, 96, groups=96), 96), 0.0, 6.0)
    return net.head(relay.add(y, net.norm(net.conv(z, 96, 16, k=1), 16)), 16)


def concat3(net: Net) -> Any:
    """Three branches, joined."""
    relay = net.relay
    y = relay.nn.relu(net.biased(net.conv(net.data(1, 8, 16, 16), 8, 16), 16))
    parts = [relay.nn.relu(net.biased(net.conv(y, 16, 16, k=k), 16)) for k in (1, 3, 5)]
    return net.conv(relay.concatenate(parts, axis=1), 48, 8, k=1)


def dense(net: Net) -> Any:
    """Three dense layers."""
    relu = net.relay.nn.relu
    y = relu(net.dense(net.data(4, 64), 64, 128))
    return net.dense(relu(net.dense(y, 128, 64)), 64, 10)


def attention(net: Net) -> Any:
    """One head of attention over 16 tokens."""
    relay, x = net.relay, net.data(16, 64)
    q, k, v = (relay.reshape(net.dense(x, 64, 64), (1, 16, 64)) for _ in range(3))
    scores = relay.nn.batch_matmul(q, k) * relay.const(np.full((1, 1, 1), 0.125, "float32"))
    mixed = relay.nn.batch_matmul(relay.nn.softmax(scores), relay.transpose(v, (0, 2, 1)))
    return net.dense(relay.reshape(mixed, (16, 64)), 64, 64)


def lstm(net: Net) -> Any:
    """One step of an LSTM cell."""
    relay, x = net.relay, net.data(4, 32)
    state = relay.tanh(net.dense(x, 32, 32))
    i, f, o, g = (net.dense(x, 32, 32) + net.dense(state, 32, 32) for _ in range(4))
    cell = relay.sigmoid(f) * state + relay.sigmoid(i) * relay.tanh(g)
    return relay.sigmoid(o) * relay.tanh(cell)


NETS: dict[str, tuple[Callable[[Net], Any], dict[str, Any]]] = {
    "small_conv": (small_conv, {}),
    "resnet_block": (resnet_block, {}),
    "mobilenet_block": (mobilenet_block, {}),
    "concat3": (concat3, {}),
    "dense": (dense, {"skip_dense_layer": False}),
    "attention": (attention, {"skip_dense_layer": False}),
    "lstm": (lstm, {"skip_dense_layer": False}),
}


class Stack:
    """The stack that runs this script."""

    def __init__(self, target: str):
        self.tvm = importlib.import_module("tvm")
        self.relay = importlib.import_module("tvm.relay")
        self.executor = importlib.import_module("tvm.contrib.graph_executor")
        self.target = self.tvm.target.Target(target)
        _single_thresholds()

    def quantize(self, mod: Any, params: Any, dataset: Any, settings: dict[str, Any]) -> Any:
        """With the settings as a `qconfig`."""
        relay, level = self.relay, self.tvm.transform.PassContext(opt_level=3)
        with self.target, level, relay.quantize.qconfig(**settings):
            return relay.quantize.quantize(mod, params, dataset)

    def run(self, mod: Any, params: Any, feeds: list[dict[str, Any]]) -> tuple[Any, float]:
        """The first outputs for each of `feeds`, and milliseconds of a run: the median."""
        device = self.tvm.cpu(0)
        with self.tvm.transform.PassContext(opt_level=3):
            library = self.relay.build(mod, target=self.target, params=params)
        runner = self.executor.GraphModule(library["default"](device))
        runner.set_input(**feeds[0])
        times: list[float] = []
        while len(times) <= REPEATS and (len(times) < 2 or sum(times) < LONGEST_S):
            start = time.perf_counter()
            runner.run()
            device.sync()
            times.append(time.perf_counter() - start)
        outputs = []
        for feed in feeds:
            runner.set_input(**feed)
            runner.run()
            outputs.append(runner.get_output(0).numpy().copy())
        return np.stack(outputs), float(np.median(times[1:])) * 1e3


_found: list[Any] = []  # the thresholds of the stack that runs this script, where they are pairs


def _single_thresholds() -> None:
    """A fork of the old stack gives thresholds as pairs, which its own pass cannot take."""
    calibrate: Any = sys.modules.get("tvm.relay.quantize._calibrate")
    if calibrate is not None and hasattr(calibrate, "_find_scale_by_kl"):
        _found.append(calibrate._find_scale_by_kl)
        calibrate._find_scale_by_kl = _threshold


def _threshold(array: Any) -> Any:
    return np.max(_found[0](array))


SHAPES = {"dense": (4, 64), "attention": (16, 64), "lstm": (4, 32), "concat3": (1, 8, 16, 16)}


class Subject:
    """A network: module, parameters, and more settings than those of the mode.

    Args:
        stack: that it is for.
        network: name in `NETS`, or an ONNX file.
    """

    def __init__(self, stack: Stack, network: str):
        self.params: Any = {}
        self.settings: dict[str, Any] = {}
        if network.endswith(".onnx"):
            self._load(stack, network)
        else:
            self._make(stack, network)
        unseen = UNSEEN_BY_FILES if network.endswith(".onnx") else UNSEEN
        draw = np.random.RandomState(1)
        feeds = [
            {self.input: draw.randn(*self.shape).astype("float32")} for _ in range(SAMPLES + unseen)
        ]
        self.samples, self.unseen = feeds[:SAMPLES], feeds[SAMPLES:]

    def _make(self, stack: Stack, name: str) -> None:
        make, self.settings = NETS[name]
        result = make(Net(stack.relay))
        function = stack.relay.Function(stack.relay.analysis.free_vars(result), result)
        self.mod = stack.relay.transform.InferType()(stack.tvm.IRModule.from_expr(function))
        self.name, self.input, self.shape = name, "data", SHAPES.get(name, (1, 3, 32, 32))

    def _load(self, stack: Stack, path: str) -> None:
        model = importlib.import_module("onnx").load(path)
        weights = {tensor.name for tensor in model.graph.initializer}
        (data,) = [value for value in model.graph.input if value.name not in weights]
        self.name = Path(path).stem
        self.input = data.name
        self.shape = tuple(dim.dim_value for dim in data.type.tensor_type.shape.dim)
        self.mod, self.params = stack.relay.frontend.from_onnx(model, {self.input: self.shape})


def measure(stack: Stack, modes: list[str], network: str) -> list[dict[str, Any]]:
    """A network in every mode: error, seconds to quantize, milliseconds."""
    subject = Subject(stack, network)
    wanted, float_ms = stack.run(subject.mod, subject.params, subject.unseen)
    return [
        {"network": subject.name, "mode": "float", "ms": float_ms},
        *(
            {"network": subject.name, "mode": mode, **_mode(stack, subject, wanted, MODES[mode])}
            for mode in modes
        ),
    ]


def _mode(stack: Stack, subject: Subject, wanted: Any, mode: dict[str, Any]) -> dict[str, Any]:
    settings = {**mode, **subject.settings}
    try:
        start = time.perf_counter()
        quantized = stack.quantize(subject.mod, subject.params, subject.samples, settings)
        seconds = time.perf_counter() - start
        got, ms = stack.run(quantized, {}, subject.unseen)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return {"error": (lines or [type(error).__name__])[-1].strip()[:80]}
    relative = float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
    return {"relative": relative, "seconds": seconds, "ms": ms}


def main(target: str, modes: str, *networks: str) -> None:
    """Measure networks in the modes that `modes` numbers: "0,2"."""
    stack = Stack(target)
    chosen = [list(MODES)[int(index)] for index in modes.split(",")]
    rows = [row for network in networks for row in measure(stack, chosen, network)]
    sys.stdout.write("\nRESULTS " + json.dumps(rows) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
