"""Small calibrated layers, realized: what the tests of integer arithmetic start from."""

import numpy as np
from tvm import relax

from plain_tvm import build, run
from tvm_quant.ir import bindings
from tvm_quant.op import Kind, QuantSpec, RequantizeMode, simulated_quantize
from tvm_quant.transform.realize import Realize

U8 = QuantSpec(signed=False, symmetric=False)
S8 = QuantSpec(narrow=True)
U16 = QuantSpec(bits=16, signed=False, symmetric=False)


class Grid:
    """Scale, zero point and spec of one quantizer."""

    def __init__(self, scale, zero_point=0, spec=U8):
        self.scale = np.asarray(scale, "float32")
        self.zero_point = np.asarray(zero_point, "int32")
        self.spec = spec

    def quantize(self, bb, data, kind=Kind.ACTIVATION, name="q"):
        call = simulated_quantize(data, self.scale, self.zero_point, spec=self.spec, kind=kind)
        return bb.emit(call, name)

    def codes(self, real) -> np.ndarray:
        """Codes as they are, int64."""
        from tvm_quant.op import quantize_numpy

        return quantize_numpy(real, self.scale, self.zero_point, self.spec).astype("int64")

    def steps(self, real) -> np.ndarray:
        """Codes minus zero point, int64."""
        return self.codes(real) - self.zero_point

    def real(self, codes) -> np.ndarray:
        """float32 values of codes."""
        steps = (np.asarray(codes, "int64") - self.zero_point).astype("float32")
        return steps * self.scale


def weight_grid(weight, axis=None, *, groups=1, bits=8) -> Grid:
    """The symmetric grid that just holds `weight`, per channel of `axis`."""
    spec = QuantSpec(bits=bits, narrow=True, axis=axis, groups=groups)
    if axis is None:
        return Grid(np.abs(weight).max() / spec.qmax, 0, spec)
    blocks = np.abs(weight).reshape(groups, -1, *weight.shape[1:])
    reduced = tuple(d for d in range(1, blocks.ndim) if d != axis + 1)
    if groups == 1:
        reduced = tuple(d for d in range(blocks.ndim) if d != axis + 1)
    largest = blocks.max(axis=reduced, keepdims=True)
    if groups > 1:
        largest = np.broadcast_to(largest, (groups, blocks.shape[1], *largest.shape[2:]))
    largest = largest.reshape(-1, *largest.shape[2:])
    return Grid(np.maximum(largest, 1e-12) / spec.qmax, 0, spec)


def realize(body, *, mode=RequantizeMode.FLOAT, **inputs):
    """The realized module of `body(builder, *inputs)`."""
    return Realize(mode)(build(body, **inputs))


def run_realized(body, *data, mode=RequantizeMode.FLOAT) -> list[np.ndarray]:
    """Results of the realized `body` on arrays."""
    shapes = {f"x{index}": x.shape for index, x in enumerate(data)}
    return run(realize(body, mode=mode, **shapes), *[x.astype("float32") for x in data])


def to_float32(acc, scale) -> np.ndarray:
    """What an accumulator becomes in float: one rounding of it, one of the scale, one product."""
    return np.asarray(acc).astype("float32") * np.asarray(scale, "float64").astype("float32")


def dtypes(mod) -> dict[str, str]:
    """{variable: dtype} of the tensors that `main` binds."""
    return {
        binding.var.name: str(binding.var.ty.dtype)
        for binding in bindings(mod["main"])
        if isinstance(binding.var.ty, relax.TensorType)
    }


def normal(*shape, scale=1.0, seed=0) -> np.ndarray:
    """float32 normal data."""
    return np.random.default_rng(seed).normal(0, scale, shape).astype("float32")
