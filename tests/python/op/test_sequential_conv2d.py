import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvm_quant
from plain_tvm import build, run_one
from tvm_quant.op import is_sequential_conv2d, sequential_conv2d, sequential_conv2d_numpy


def in_order(x, w, block):
    """One output of a kernel as large as its input, written out."""
    sums = []
    terms = list(zip(x.ravel(), w.ravel(), strict=True))
    for start in range(0, len(terms), block):
        total = np.float32(0)
        for a, b in terms[start : start + block]:
            total = np.float32(np.float64(a) * np.float64(b) + np.float64(total))
        sums.append(total)
    result = sums[0]
    for other in sums[1:]:
        result = np.float32(result + other)
    return result


@given(seed=st.integers(0, 99), block=st.integers(1, 40))
def test_the_reference_adds_in_the_stated_order(seed, block):
    rng = np.random.default_rng(seed)
    x, w = (rng.normal(size=(1, 3, 3, 3)).astype("float32") for _ in range(2))
    got = sequential_conv2d_numpy(x, w, strides=(1, 1), padding=(0,) * 4, block=block)
    assert got.item() == in_order(x, w, block)


@st.composite
def cases(draw):
    groups, per_group = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    pair = st.tuples(st.integers(1, 2), st.integers(1, 2))
    settings = {
        "strides": draw(pair),
        "padding": draw(st.tuples(*[st.integers(0, 2)] * 4)),
        "dilation": draw(pair),
        "groups": groups,
        "block": draw(st.integers(1, 40)),
    }
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.normal(size=(draw(st.integers(1, 2)), groups * per_group, 6, 7)).astype("float32")
    outputs = groups * draw(st.integers(1, 3))
    return x, rng.normal(size=(outputs, per_group, *kernel)).astype("float32"), settings


@settings(max_examples=15)
@given(case=cases())
def test_both_builds_add_as_the_reference_does(case):
    x, w, settings = case

    def body(_builder, data, weight):
        call = sequential_conv2d(data, weight, **settings)
        assert is_sequential_conv2d(call)
        return call

    mod = build(body, x=x.shape, w=w.shape)
    expected = sequential_conv2d_numpy(x, w, **settings)
    np.testing.assert_array_equal(run_one(mod, x, w), expected)
    machine = relax.VirtualMachine(tvm_quant.compile(mod), tvm.cpu())
    scheduled = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
    np.testing.assert_array_equal(scheduled, expected)
