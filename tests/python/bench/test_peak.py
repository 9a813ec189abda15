from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from tvm.target import Target

from tvm_quant.backend import host_target
from tvm_quant.backend.cpu import isa_of
from tvm_quant.bench import peak
from tvm_quant.bench.peak import STEPS, SUMS, peak_gops, peak_loop


@pytest.mark.parametrize("reach", [128, 64])
def test_the_loop_adds_products_of_the_sums_bytes_and_the_weights(reach):
    target = host_target()
    isa = isa_of(target)
    dot = isa.dot("uint8", pair=2 * reach)
    if dot is None:
        pytest.skip(f"{isa.name} has no instruction for products of 8 bits")
    rng = np.random.default_rng(0)
    weights = rng.integers(-reach, reach, (isa.lanes, dot.size)).astype("int8")
    sums = rng.integers(-(2**20), 2**20, SUMS * isa.lanes).astype("int32")
    values = tvm.runtime.tensor(sums)
    loop = tvm.compile(tvm.IRModule({"main": peak_loop(isa, dot, steps=1)}), target)
    loop["main"](tvm.runtime.tensor(weights.ravel()), values)
    data = sums.view(dot.data).reshape(SUMS, isa.lanes, dot.size).astype("int32")
    expected = sums + (data * weights).sum(-1).ravel()
    np.testing.assert_array_equal(values.numpy(), expected)


def test_a_peak_is_told_in_thousands_of_millions(monkeypatch):
    """A loop of a million nanoseconds: the median counts, a multiply-add as two."""
    isa = isa_of(host_target())
    dot = isa.dot("int16")
    if dot is None:
        pytest.skip(f"{isa.name} has no instruction for products of 16 bits")
    timed = SimpleNamespace(results=[9.0, 1e-3, 1e-3])
    timer = SimpleNamespace(mod=SimpleNamespace(time_evaluator=lambda *_a, **_k: lambda *_a: timed))
    monkeypatch.setattr(peak.tvm, "compile", lambda *_args: timer)
    assert peak_gops(dtype="int16") == 2 * SUMS * STEPS * isa.lanes * dot.size / 1e6


def test_a_target_without_an_instruction_is_refused():
    plain = Target({"kind": "llvm", "mtriple": "riscv64-linux-gnu", "mcpu": "generic-rv64"})
    with pytest.raises(ValueError, match="generic has no instruction for uint8 times int8"):
        peak_gops(plain)
