"""Iterators and data loaders of MXNet as calibration data; skipped where it is not installed."""

import numpy as np
import pytest

from mxnet_live import installed
from tvm_quant.dataset import as_dataset
from tvm_quant.ir import TensorInfo

IMAGES = np.arange(10 * 3 * 2 * 2, dtype="float32").reshape(10, 3, 2, 2)
LABELS = np.arange(10, dtype="float32")


@pytest.fixture(scope="module")
def mx():
    return installed()


def array_iterator(mx):
    return mx.io.NDArrayIter(IMAGES, LABELS, batch_size=4)  # the last batch is filled up


def prefetching_iterator(mx):
    return mx.io.PrefetchingIter(array_iterator(mx))


def data_loader(mx):
    data = mx.gluon.data.ArrayDataset(IMAGES, LABELS)
    return mx.gluon.data.DataLoader(data, batch_size=4)


def loader_of_workers(mx):
    data = mx.gluon.data.ArrayDataset(IMAGES, LABELS)
    return mx.gluon.data.DataLoader(data, batch_size=4, num_workers=1, thread_pool=True)


@pytest.mark.parametrize(
    "source", [array_iterator, prefetching_iterator, data_loader, loader_of_workers]
)
@pytest.mark.parametrize("batch", [None, 2], ids=["open", "fixed"])
def test_samples_come_once_with_their_labels_in_every_pass(mx, source, batch):
    signature = [TensorInfo(name="data", shape=(batch, 3, 2, 2), dtype="float32")]
    dataset = as_dataset(source(mx), signature)
    assert (dataset.samples, dataset.labelled) == (10, True)
    for _ in range(2):
        batches = list(dataset.with_labels())
        images = np.concatenate([item.inputs["data"][: item.valid] for item in batches])
        labels = np.concatenate([item.labels[: item.valid] for item in batches])
        np.testing.assert_array_equal(images, IMAGES)
        np.testing.assert_array_equal(labels, LABELS)


def test_a_loader_without_labels(mx):
    loader = mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(IMAGES), batch_size=5)
    signature = [TensorInfo(name="x", shape=(None, 3, 2, 2), dtype="float32")]
    dataset = as_dataset(loader, signature)
    assert (dataset.samples, dataset.labelled) == (10, False)


def test_arrays_of_mxnet_are_samples(mx):
    signature = [TensorInfo(name="x", shape=(2, 3, 2, 2), dtype="float32")]
    assert as_dataset(mx.nd.array(IMAGES), signature).samples == 10
    assert as_dataset({"x": mx.nd.array(IMAGES), "label": mx.nd.array(LABELS)}, signature).labelled
