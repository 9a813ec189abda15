"""Thresholds that TVM found while it had Relay, on tensors of 100 000 values.

Measured with hhb-tvm 3.2.3, a fork of TVM 0.16, in an environment of its own:

    python3.10 tests/python/estimator/old_thresholds.py
"""

import numpy as np

THRESHOLDS = {
    "normal": 4.014019012451172,
    "relu": 4.177651405334473,
    "uniform": 0.9999943971633911,
    "outlier": 8.41144847869873,
    "laplace": 9.292563438415527,
    "cauchy": 1370.747802734375,
    "silu": 6.912030220031738,
    "exponential": 9.222099304199219,
    "sigmoid": 0.9986105561256409,
    "lognormal": 24.46978759765625,
    "shifted": 6.963059425354004,
    "pixels": 254.93626403808594,
    "relu6": 5.997000217437744,
    "mostly_zero": 0.9008290767669678,
    "ones": 1.0,
    "halves": 0.318085253238678,
    "zeros": 0.015935508534312248,
}


def tensors() -> dict[str, np.ndarray]:
    """Each float32, drawn one after the other."""
    rng = np.random.RandomState(0)
    count = 100_000
    found = {
        "normal": rng.randn(count),
        "relu": np.maximum(rng.randn(count), 0),
        "uniform": rng.rand(count),
        "outlier": np.append(rng.randn(count), 100),
        "laplace": rng.laplace(size=count),
        "cauchy": rng.standard_cauchy(count),
        "silu": _silu(2 * rng.randn(count)),
        "exponential": rng.exponential(size=count),
        "sigmoid": 1 / (1 + np.exp(-2 * rng.randn(count))),
        "lognormal": rng.lognormal(size=count),
        "shifted": 3 + rng.randn(count),
        "pixels": rng.randint(0, 256, count),
        "relu6": np.clip(3 * rng.randn(count), 0, 6),
        "mostly_zero": np.where(rng.rand(count) < 0.99, 0, rng.randn(count)),
        "ones": np.ones(count),
        "halves": np.repeat([5.0, 0.0], count // 2),
        "zeros": np.zeros(count),
    }
    return {name: np.asarray(values, np.float32) for name, values in found.items()}


def _silu(values: np.ndarray) -> np.ndarray:
    return values / (1 + np.exp(-values))


if __name__ == "__main__":
    from tvm.relay.quantize.kl_divergence import _find_scale_by_kl

    for name, values in tensors().items():
        print(f'    "{name}": {float(np.max(_find_scale_by_kl(values)))!r},')
