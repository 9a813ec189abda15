"""Small Relay networks for tests, and how far their quantized form is from the float one."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

import tvm_relay as relay
from tvm_quant import Runner
from tvm_quant.ir import bindings, op_name
from tvm_relay import quantize

#: Without a configuration, so that every layer that can is quantized.
ALL = {"skip_conv_layers": [], "skip_dense_layer": False}
#: Settings of the three modes of calibration.
MODES: dict[str, dict[str, Any]] = {
    "global_scale": {},
    "kl_divergence": {"calibrate_mode": "kl_divergence", "weight_scale": "max"},
    "percentile": {"calibrate_mode": "percentile", "weight_scale": "max"},
}


class Layers:
    """Layers with random weights of one generator."""

    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)

    def conv(self, data: Any, outputs: int, inputs: int, size: int = 3, gain: float = 1.0) -> Any:
        """A convolution that keeps height and width; weights of variance 2 / fan-in."""
        spread = gain * np.sqrt(2 / (inputs * size * size))
        weight = relay.const(self.normal((outputs, inputs, size, size), spread))
        return relay.nn.conv2d(
            data,
            weight,
            channels=outputs,
            kernel_size=(size, size),
            padding=(size // 2, size // 2),
        )

    def block(self, data: Any, outputs: int, inputs: int, size: int = 3, gain: float = 1.0) -> Any:
        """A convolution with relu."""
        return relay.nn.relu(self.conv(data, outputs, inputs, size, gain))

    def normal(self, shape: tuple[int, ...], spread: float = 1.0) -> np.ndarray:
        return self.rng.normal(0, spread, shape).astype("float32")


def image(channels: int = 4, size: int = 8, name: str = "x") -> Any:
    return relay.var(name, shape=(1, channels, size, size))


def samples(source: Any, count: int = 4, seed: int = 1) -> list[dict[str, np.ndarray]]:
    """Normal data for the inputs of a network."""
    rng = np.random.default_rng(seed)
    params = relay.to_relax(source)["main"].params
    shapes = {str(p.name): [int(d) for d in p.ty.shape.values] for p in params}
    return [
        {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()} for _ in range(count)
    ]


def quantized(
    source: Any, params: Any = None, dataset: Any = None, **settings: Any
) -> tvm.IRModule:
    with quantize.qconfig(**{**ALL, **settings}):
        return quantize.quantize(source, params, dataset)


def outputs(mod: Any, data: list[dict[str, np.ndarray]]) -> list[np.ndarray]:
    """All outputs for all samples, flat, one array an output."""
    runner = Runner(relay.to_relax(mod), "llvm")
    runs = [runner.run(batch) for batch in data]
    return [
        np.concatenate([array.ravel() for array in output]) for output in zip(*runs, strict=True)
    ]


def relative_error(source: Any, mod: tvm.IRModule, data: list[dict[str, np.ndarray]]) -> float:
    """||quantized - float|| / ||float|| over all outputs."""
    want = np.concatenate(outputs(source, data))
    got = np.concatenate(outputs(mod, data))
    assert np.isfinite(got).all()
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def error_of(source: Any, **settings: Any) -> float:
    """Of a network quantized with its own samples."""
    data = samples(source)
    return relative_error(source, quantized(source, dataset=data, **settings), data)


def layers(mod: tvm.IRModule, *kinds: str) -> list[str]:
    """Type of the result of each convolution or product, in order: int32 where it is integer."""
    kinds = kinds or ("nn.conv1d", "nn.conv2d", "matmul")
    calls = [b for b in bindings(mod["main"]) if op_name(b.value) in {f"relax.{k}" for k in kinds}]
    return [str(b.var.ty.dtype) for b in calls]
