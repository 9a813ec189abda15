"""Small Relay networks, and how far their integers are from float."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import IRModule

import tvm_quant
import tvm_relay as relay
from tvm_quant.ir import bindings, io_signature, op_name

rng = np.random.RandomState


class Net:
    """Draws He-scaled constants from one generator."""

    def __init__(self, seed: int = 0):
        self.rng = rng(seed)

    def weight(self, *shape: int, scale: float = 1.0) -> relay.Constant:
        fan = int(np.prod(shape[1:]))
        return relay.const((self.rng.randn(*shape) * scale * (2 / fan) ** 0.5).astype("float32"))

    def conv(self, data: Any, inputs: int, outputs: int, k: int = 3, **attrs: Any) -> relay.Call:
        groups = attrs.get("groups", 1)
        weight = self.weight(outputs, inputs // groups, k, k)
        pad = (k // 2, k // 2)
        return relay.nn.conv2d(data, weight, padding=pad, channels=outputs, **attrs)


def data(*shape: int, name: str = "x") -> relay.Var:
    return relay.var(name, shape=shape)


def samples(mod: IRModule, count: int = 4, seed: int = 1) -> list[dict[str, np.ndarray]]:
    draw = rng(seed)
    return [
        {i.name: draw.randn(*i.shape).astype("float32") for i in io_signature(mod)}
        for _ in range(count)
    ]


def quantized(expr: Any, mode: str = "kl_divergence", **settings: Any) -> IRModule:
    """With the settings of an old call: every convolution is quantized unless it says otherwise."""
    mod = relay.to_relax(expr)
    settings = {"skip_conv_layers": [], "weight_scale": "max", **settings}
    with relay.quantize.qconfig(calibrate_mode=mode, **settings):
        return relay.quantize.quantize(mod, None, samples(mod))


def outputs(mod: IRModule, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    return tvm_quant.Runner(mod).run(feed)


def error(expr: Any, **settings: Any) -> float:
    """Relative L2 distance of the quantized network from the float one, on data it has not seen."""
    mod = relay.to_relax(expr)
    feed = samples(mod, 1, seed=7)[0]
    wanted = outputs(relay.quantize.prerequisite_optimize(mod), feed)
    got = outputs(quantized(expr, **settings), feed)
    return relative(wanted, got)


def relative(wanted: list[np.ndarray], got: list[np.ndarray]) -> float:
    a, b = (np.concatenate([np.ravel(v).astype("float64") for v in vs]) for vs in (wanted, got))
    return float(np.linalg.norm(a - b) / np.linalg.norm(a))


def operators(mod: IRModule, dtype: str) -> list[str]:
    """Operators whose result has that dtype, in order."""
    return [
        str(op_name(b.value)).removeprefix("relax.")
        for b in bindings(mod["main"])
        if op_name(b.value) is not None and str(getattr(b.var.ty, "dtype", "")) == dtype
    ]


def layers(mod: IRModule, dtype: str = "int32") -> list[str]:
    """Convolutions and matrix products among them."""
    return [name for name in operators(mod, dtype) if "conv" in name or name == "matmul"]
