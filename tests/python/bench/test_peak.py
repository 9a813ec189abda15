import numpy as np
import pytest
import tvm
from tvm.target import Target

from tvm_quant.backend import host_target
from tvm_quant.backend.cpu import isa_of
from tvm_quant.bench.peak import SUMS, peak_gops, peak_loop


def test_the_loop_adds_products_of_the_sums_bytes_and_the_weights():
    target = host_target()
    isa = isa_of(target)
    dot = isa.dot("uint8")
    if dot is None:
        pytest.skip(f"{isa.name} has no instruction for products of 8 bits")
    rng = np.random.default_rng(0)
    weights = rng.integers(-128, 128, (isa.lanes, dot.size)).astype("int8")
    sums = rng.integers(-(2**20), 2**20, SUMS * isa.lanes).astype("int32")
    values = tvm.runtime.tensor(sums)
    loop = tvm.compile(tvm.IRModule({"main": peak_loop(isa, dot, steps=1)}), target)
    loop["main"](tvm.runtime.tensor(weights.ravel()), values)
    data = sums.view(dot.data).reshape(SUMS, isa.lanes, dot.size).astype("int32")
    expected = sums + (data * weights).sum(-1).ravel()
    np.testing.assert_array_equal(values.numpy(), expected)


@pytest.mark.isa("avx512_vnni")
def test_quads_have_twice_the_peak_of_pairs():
    quads, pairs = peak_gops(repeats=5), peak_gops(dtype="int16", repeats=5)
    assert quads > 1.5 * pairs


def test_a_target_without_an_instruction_is_refused():
    plain = Target({"kind": "llvm", "mtriple": "riscv64-linux-gnu", "mcpu": "generic-rv64"})
    with pytest.raises(ValueError, match="generic has no instruction for uint8 times int8"):
        peak_gops(plain)
