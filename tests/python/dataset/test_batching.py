"""Cutting and joining samples."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tvm_quant.dataset.batching import Batch, regroup


def run(start, count, width=1):
    values = np.repeat(np.arange(start, start + count)[:, None], width, axis=1)
    return Batch(inputs={"x": values}, labels=values[:, 0], valid=count)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 5), st.booleans())
def test_regroup_keeps_every_sample_once_and_in_order(counts, size, fixed):
    starts = np.cumsum([0, *counts[:-1]])
    batches = list(
        regroup([run(int(s), c) for s, c in zip(starts, counts, strict=True)], size, fixed=fixed)
    )
    total = sum(counts)
    assert [b.valid for b in batches[:-1]] == [size] * (len(batches) - 1)
    valid_rows = np.concatenate([b.inputs["x"][: b.valid, 0] for b in batches])
    np.testing.assert_array_equal(valid_rows, np.arange(total))
    np.testing.assert_array_equal(np.concatenate([b.labels for b in batches]), np.arange(total))
    if fixed:
        assert all(len(b.inputs["x"]) == size for b in batches)


def test_leftover_of_a_fixed_batch_repeats_its_samples():
    (batch,) = regroup([run(7, 2)], 5, fixed=True)
    assert batch.inputs["x"][:, 0].tolist() == [7, 8, 7, 8, 7]
    assert batch.valid == 2
    assert batch.labels.tolist() == [7, 8]


def test_samples_of_different_lengths_never_share_a_batch():
    runs = [run(0, 1, 2), run(1, 1, 2), run(2, 1, 3), run(3, 1, 2)]
    shapes = [batch.inputs["x"].shape for batch in regroup(runs, 4, fixed=False)]
    assert shapes == [(2, 2), (1, 3), (1, 2)]


def test_a_run_without_labels_leaves_its_batch_without_labels():
    unlabelled = Batch(inputs={"x": np.zeros((1, 1), int)}, labels=None, valid=1)
    (batch,) = regroup([run(0, 1), unlabelled], 2, fixed=True)
    assert batch.labels is None
