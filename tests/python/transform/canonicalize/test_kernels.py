"""Kernels as TVM's importers generate them are raised to the operators they compute."""

import numpy as np
import pytest
from tvm import relax, tirx, topi

from plain_tvm import build
from prepared import assert_prepares, nn, prepared

c, op = relax.const, relax.op
X = {"x": (2, 3, 4, 4)}
BEFORE, AFTER = [0, 0, 1, 2], [0, 1, 0, 3]
WIDTHS = [0, 0, 0, 1, 1, 0, 2, 3]


def kernel(function, *attributes):
    return lambda bb, x: bb.emit_te(function, x, *attributes)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (kernel(topi.nn.pad, BEFORE, AFTER, 0.0), lambda x: nn.pad(x, WIDTHS)),
        (kernel(topi.nn.pad, BEFORE, AFTER, 2.5), lambda x: nn.pad(x, WIDTHS, pad_value=2.5)),
        (
            kernel(topi.nn.mirror_pad, BEFORE, AFTER, "REFLECT"),
            lambda x: nn.pad(x, WIDTHS, pad_mode="reflect"),
        ),
        (
            kernel(topi.nn.replicate_pad, BEFORE, AFTER),
            lambda x: nn.pad(x, WIDTHS, pad_mode="replicate"),
        ),
        (
            kernel(topi.nn.circular_pad, BEFORE, AFTER),
            lambda x: nn.pad(x, WIDTHS, pad_mode="circular"),
        ),
        (kernel(topi.tile, [1, 2, 1, 3]), lambda x: op.tile(x, [1, 2, 1, 3])),
        (kernel(topi.flip, 2), lambda x: op.flip(x, 2)),
        (kernel(topi.maximum, 0.0), nn.relu),
        (kernel(topi.minimum, 6.0), lambda x: op.clip(x, -np.inf, 6.0)),
    ],
)
def test_a_generated_kernel_becomes_its_operator(before, after):
    assert_prepares(before, lambda bb, x: after(x), **X)


def test_relu6_as_the_onnx_importer_writes_it_is_one_clip():
    def before(bb, x):
        result = x
        for function, bound, open_end in ((topi.maximum, 0, -np.inf), (topi.minimum, 6, np.inf)):
            limit = c(np.float32(bound))
            limit = bb.emit(op.where(op.isnan(limit), c(np.float32(open_end)), limit))
            result = bb.emit_te(function, result, limit)
        return result

    assert_prepares(before, lambda bb, x: op.clip(x, 0.0, 6.0), **X)


def test_kernels_of_open_dimensions_are_raised_too():
    shape = (tirx.Var("n", "int64"), 3)
    assert_prepares(kernel(topi.maximum, 0.0), lambda bb, x: nn.relu(x), x=shape)


def test_a_kernel_that_computes_something_else_under_the_same_name_stays():
    def impostor(x):
        return topi.nn.pad(topi.negative(x), BEFORE, AFTER)

    mod = prepared(lambda bb, x: bb.emit_te(impostor, x, primfunc_name_hint="pad"), **X)
    assert "call_tir" in mod.script()


def test_kernels_that_nothing_calls_any_more_are_removed():
    original = build(kernel(topi.tile, [1, 2, 1, 3]), **X)
    assert len(original.functions) == 2
    assert len(prepared(kernel(topi.tile, [1, 2, 1, 3]), **X).functions) == 1
