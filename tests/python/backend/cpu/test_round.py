"""RoundInRegisters: which calls it lowers, and that no bit changes."""

import numpy as np
import pytest
import tvm
from tvm import relax

import backend_networks as networks
import plain_tvm
from tvm_quant.backend.cpu.isa import ISAS
from tvm_quant.backend.cpu.round import RoundInRegisters
from tvm_quant.ir import bindings
from tvm_quant.op import RequantizeMode, is_requantize, requantize

ROWS = {isa.name: isa for isa in ISAS}
LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-(2**15), 2**15 - 1)}


def network(multiplier, zero_point=3, *, dtype="uint8", source="int32", bounds=None, **options):
    low, high = bounds or LIMITS[dtype]

    def body(_builder, x):
        return requantize(x, multiplier, zero_point, dtype=dtype, qmin=low, qmax=high, **options)

    return plain_tvm.build(body, x=(source, 64))


@networks.runs_on
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero_point", [0, 128, -77])
@pytest.mark.parametrize("multiplier", [0.99, 0.5, 0.25, 0.003, 1e-7])
def test_all_accumulators_give_the_bits_of_the_plain_build(target, dtype, zero_point, multiplier):
    low, high = LIMITS[dtype]
    edges = [value / multiplier for value in (low - zero_point, high - zero_point, 0.5, 1.5, 2.5)]
    near = [edge + step for edge in edges for step in range(-4, 5)]
    values = [*near, -(2**31), 2**31 - 1, 2**31 - 65, -(2**30), 2**24 + 1]
    info = np.iinfo("int32")
    x = np.clip(np.resize(values, 64), info.min, info.max).astype("int32")
    mod = network(multiplier, zero_point, dtype=dtype)
    (ours,), (plain,) = networks.run(mod, x, target=target), plain_tvm.run(mod, x)
    np.testing.assert_array_equal(ours, plain)


def test_a_fused_clip_narrows_the_bounds():
    mod = network(0.01, 7, bounds=(7, 100))
    x = np.linspace(-20000, 20000, 64).astype("int32")
    (ours,), (plain,) = networks.run(mod, x), plain_tvm.run(mod, x)
    assert ours.min() == 7 and ours.max() == 100
    np.testing.assert_array_equal(ours, plain)


def lowered(mod, isa):
    mod = RoundInRegisters(ROWS[isa])(mod)
    calls = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    return not any(map(is_requantize, calls))


@pytest.mark.parametrize("isa", ["avx512vnni", "avx512", "avxvnni", "avx2"])
def test_factors_below_one_are_lowered(isa):
    assert lowered(network([0.5, 0.1] * 32), isa)


@pytest.mark.parametrize(
    "mod",
    [
        network(1.5),
        network([0.5, 1.0] * 32),
        network(0.1, 1 << 21),
        network(0.1, dtype="int16"),
        network(0.1, source="int64"),
        network(0.25, mode=RequantizeMode.SHIFT),
        network(0.1, mode=RequantizeMode.FIXED_POINT),
    ],
    ids=["large", "one large", "zero point", "16 bits", "wide sums", "shift", "fixed point"],
)
def test_what_may_leave_32_bits_stays(mod):
    tvm.ir.assert_structural_equal(RoundInRegisters(ROWS["avx512vnni"])(mod), mod)


@pytest.mark.parametrize("isa", ["sse2", "neon", "generic"])
def test_rows_without_the_conversion_keep_theirs(isa):
    assert not lowered(network(0.5), isa)
