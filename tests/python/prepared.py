"""Before and after Prepare, both as functions that emit bindings."""

from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax

from plain_tvm import Body, build, run
from tvm_quant.ir import bindings, op_name
from tvm_quant.transform.prepare import Prepare, verify_prepared

nn = relax.op.nn


def prepared(body: Body, **inputs: tuple[Any, ...]) -> IRModule:
    """The prepared module of `body`, whose results were compared with those of the original."""
    original = build(body, **inputs)
    text = original.script()
    mod = Prepare()(original)
    assert original.script() == text, "Prepare changed the module it was given"
    verify_prepared(mod)
    tvm.ir.assert_structural_equal(Prepare()(mod), mod)
    assert_same_results(original, mod)
    return mod


def assert_prepares(before: Body, after: Body, **inputs: tuple[Any, ...]) -> None:
    """Prepare turns `before` into exactly `after`, which computes the same."""
    expected = relax.transform.CanonicalizeBindings()(build(after, **inputs))
    tvm.ir.assert_structural_equal(prepared(before, **inputs), expected)


def assert_leaves(body: Body, **inputs: tuple[Any, ...]) -> None:
    """Prepare changes nothing."""
    assert_prepares(body, body, **inputs)


def assert_same_results(original: IRModule, mod: IRModule, limit: float = 1e-5) -> None:
    """Both compute the same on random inputs; open dimensions are 2."""
    rng = np.random.default_rng(0)
    arrays = []
    for param in original["main"].params:
        shape = [int(d) if hasattr(d, "value") else 2 for d in param.ty.shape.values]
        arrays.append(rng.normal(size=shape).astype(str(param.ty.dtype)))
    for got, wanted in zip(run(mod, *arrays), run(original, *arrays), strict=True):
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(np.isfinite(got), finite)
        largest = np.abs(wanted[finite]).max(initial=0)
        np.testing.assert_allclose(got[finite], wanted[finite], rtol=0, atol=limit * largest)


def names(mod: IRModule) -> list[str]:
    """Operators of `main` in order, without "relax."."""
    operators = [op_name(binding.value) for binding in bindings(mod["main"])]
    return [name.removeprefix("relax.") for name in operators if name]


def const(*shape: int, seed: int = 1, low: int = 1, high: int = 5) -> np.ndarray:
    """Small powers of two, whose products and sums are exact in float32."""
    powers = np.random.default_rng(seed).integers(low, high, shape)
    return (2.0**powers / 8).astype(np.float32)
