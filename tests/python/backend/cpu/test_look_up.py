"""Look-ups in tables of constants: which calls are lowered, what takes them in, no bit changes."""

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import backend_networks as networks
import plain_tvm
from tvm_quant.backend.cpu.look_up import LowerLookUps
from tvm_quant.backend.cpu.pipeline import cpu_pipeline
from tvm_quant.ir import constant
from tvm_quant.op import requantize

R = relax.op
SHAPE = (1, 8, 3, 5)


def look_up(table, index, **options):
    return R.take(constant(table), index, **{"axis": 0, "mode": "clip", **options})


def table_of(dtype, count=256):
    values = np.random.default_rng(0).integers(-100, 100, count)
    return (values + 100 if dtype == "uint8" else values).astype(dtype)


@networks.runs_on
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float32"])
def test_codes_are_replaced_by_what_the_table_has(target, dtype):
    table, x = table_of(dtype), networks.codes(SHAPE)
    mod = plain_tvm.build(lambda _, x: look_up(table, R.astype(x, "int32")), x=("uint8", *SHAPE))
    (found,) = networks.run(mod, x, target=target)
    assert found.dtype == table.dtype
    np.testing.assert_array_equal(found, table[x])


@pytest.mark.parametrize("count", [1, 100, 1000])
def test_what_leaves_the_table_is_clipped(count):
    table = table_of("int8", count)
    x = np.int32([-(2**31), -1, 0, count - 1, count, 2**31 - 1])
    mod = plain_tvm.build(lambda _, x: look_up(table, x), x=("int32", *x.shape))
    (found,) = networks.run(mod, x)
    assert found.dtype == table.dtype
    np.testing.assert_array_equal(found, table[np.clip(x, 0, count - 1)])


def test_the_kernel_that_computes_the_indices_takes_the_look_up_in():
    table = table_of("uint8")

    def body(_builder, x):
        codes = requantize(x, 0.01, 7, dtype="uint8", qmin=0, qmax=255)
        return look_up(table, R.astype(codes, "int32"))

    mod = plain_tvm.build(body, x=("int32", *SHAPE))
    x = np.random.default_rng(1).integers(-20000, 20000, SHAPE).astype("int32")
    (found,) = networks.run(mod, x)
    np.testing.assert_array_equal(found, plain_tvm.run_one(mod, x))
    compiled = cpu_pipeline(tvm.target.Target("llvm"))(mod)
    kernels = [func for func in compiled.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert len(kernels) == 1


@pytest.mark.parametrize(
    ("table", "index", "options"),
    [
        (table_of("int8"), "int32", {"mode": "wrap"}),
        (table_of("int8"), "int64", {}),
        (table_of("int8").reshape(64, 4), "int32", {}),
    ],
    ids=["wraps", "wide indices", "rows"],
)
def test_other_gathers_stay(table, index, options):
    mod = plain_tvm.build(lambda _, x: look_up(table, x, **options), x=(index, 3, 4))
    tvm.ir.assert_structural_equal(LowerLookUps()(mod), mod)
