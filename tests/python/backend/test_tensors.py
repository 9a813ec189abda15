from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax

from plain_tvm import build
from tvm_quant import Runner
from tvm_quant.backend.tensors import ALIGNMENT, Inputs, as_array

TYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*TYPES, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_arrays_go_in_and_come_out(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    (tensor,) = Inputs(tvm.cpu()).filled([array])
    out = as_array(tensor)
    assert out.dtype == array.dtype
    assert out.shape == shape
    np.testing.assert_array_equal(out, array)


def test_memory_is_kept_while_shapes_stay():
    inputs = Inputs(tvm.cpu())
    (first,) = inputs.filled([np.zeros((2, 3), "float32")])
    (again,) = inputs.filled([np.ones((2, 3), "float32")])
    assert again.same_as(first)
    (other,) = inputs.filled([np.ones((2, 4), "float32")])
    assert other.shape == (2, 4)
    assert np.from_dlpack(first).ctypes.data % ALIGNMENT == 0


def test_arrays_of_any_strides_are_read_in_order():
    array = np.arange(12, dtype="int32").reshape(3, 4).T[::-1]
    (tensor,) = Inputs(tvm.cpu()).filled([array])
    np.testing.assert_array_equal(as_array(tensor), array)


@pytest.mark.parametrize("body", [lambda _, x: x, lambda _, x: relax.op.add(x, x)])
def test_results_outlive_the_next_run(body):
    runner = Runner(build(body, x=(4,)))
    (first,) = runner.run({"x": np.full(4, 1, "float32")})
    kept = first.copy()
    runner.run({"x": np.full(4, 7, "float32")})
    np.testing.assert_array_equal(first, kept)


def test_threads_do_not_share_inputs():
    runner = Runner(build(lambda _, x: relax.op.add(x, x), x=(64,)))

    def wrong(value):
        results = [runner.run({"x": np.full(64, value, "float32")})[0] for _ in range(50)]
        return sum(int((result != 2 * value).sum()) for result in results)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(wrong, range(8))) == 0
