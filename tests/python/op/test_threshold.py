import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from plain_tvm import build, run_one
from tvm_quant.errors import ConfigError
from tvm_quant.op import is_threshold, threshold, threshold_numpy


@st.composite
def cases(draw):
    channels, count = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    dtype = draw(st.sampled_from(["int32", "int64", "float32"]))
    values = st.integers(-20, 20)
    thresholds = draw(st.lists(values, min_size=channels * count, max_size=channels * count))
    data = draw(st.lists(values, min_size=2 * channels, max_size=2 * channels))
    per_channel = draw(st.booleans())
    shape = (channels, count) if per_channel else (1, channels * count)
    steps = np.sort(np.array(thresholds).reshape(shape), axis=-1).astype(dtype)
    steps = steps[None] if per_channel else steps[0]
    return np.array(data, dtype).reshape(2, channels), steps


@settings(max_examples=25)
@given(case=cases(), low=st.integers(-5, 5))
def test_compiled_codes_count_thresholds(case, low):
    data, thresholds = case
    rows = np.broadcast_to(thresholds, (*data.shape, thresholds.shape[-1]))
    counted = [
        [low + sum(bool(value >= t) for t in rows[i, j]) for j, value in enumerate(line)]
        for i, line in enumerate(data)
    ]
    np.testing.assert_array_equal(threshold_numpy(data, thresholds, low=low), counted)

    def body(_builder, x):
        call = threshold(x, thresholds, low=low, dtype="int8")
        assert is_threshold(call)
        return call

    result = run_one(build(body, x=(str(data.dtype), *data.shape)), data)
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, counted)


def test_falling_thresholds_are_refused():
    x = relax.Var("x", relax.TensorType((2,), "int32"))
    with pytest.raises(ConfigError, match="fall"):
        threshold(x, [3, 1], low=0, dtype="uint8")
