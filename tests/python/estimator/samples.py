"""Tensors that estimators are tried on."""

import numpy as np

from tvm_quant.op import QuantSpec
from tvm_quant.op.simulated_quantize import simulated_quantize_numpy

U8 = QuantSpec(signed=False, symmetric=False)
S8 = QuantSpec(narrow=True)
GRIDS = {
    "u8": U8,
    "s8": S8,
    "s8_affine": QuantSpec(symmetric=False),
    "u8_symmetric": QuantSpec(signed=False),
    "u4": QuantSpec(bits=4, signed=False, symmetric=False),
    "s4": QuantSpec(bits=4, narrow=True),
    "s2": QuantSpec(bits=2, narrow=True),
    "u16": QuantSpec(bits=16, signed=False, symmetric=False),
    "s16": QuantSpec(bits=16, narrow=True),
}


def tensors() -> dict[str, np.ndarray]:
    """Each float32, (16, 500): 16 samples."""
    rng = np.random.default_rng(0)
    shape = (16, 500)
    normal = rng.normal(size=shape)
    found = {
        "normal": normal,
        "relu": np.maximum(normal, 0),
        "negative": -np.abs(normal),
        "silu": normal * 2 / (1 + np.exp(-2 * normal)),
        "laplace": rng.laplace(size=shape),
        "cauchy": rng.standard_cauchy(shape),
        "uniform": rng.uniform(size=shape),
        "far_from_zero": 100 + normal,
        "zero_or_five": rng.choice([0.0, 5.0], shape),
        "minus_five_or_five": rng.choice([-5.0, 5.0], shape),
        "mostly_zero": np.where(rng.uniform(size=shape) < 0.99, 0, normal),
        "constant": np.full(shape, 3.0),
        "zero": np.zeros(shape),
        "pixels": rng.integers(0, 256, shape),
        "tiny": normal * 1e-9,
        "huge": normal * 1e30,
    }
    return {name: values.astype(np.float32) for name, values in found.items()}


def sqnr_db(values, scale, zero_point, spec) -> float:
    """Signal to quantization noise ratio of rounding `values` to a grid."""
    values = values.astype(np.float64)
    rounded = simulated_quantize_numpy(values, scale, zero_point, spec)
    noise = np.sum((rounded.astype(np.float64) - values) ** 2)
    return 10 * np.log10(np.sum(values**2) / noise) if noise else np.inf
