"""The whole road from a user's data to checked batches."""

import gc
import itertools
import tracemalloc
import warnings

import numpy as np
import pytest

from tvm_quant.config import BadData, ZeroData
from tvm_quant.dataset import DatasetWarning, Preprocess, as_dataset
from tvm_quant.dataset import iterable as iterable_module
from tvm_quant.errors import DatasetError
from tvm_quant.ir import TensorInfo


def info(shape=(1, 3), dtype="float32", name="x"):
    return TensorInfo(name=name, shape=shape, dtype=dtype)


FIXED = [info((2, 3))]
FREE = [info((None, 3))]


def samples(count, width=3, seed=0):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def joined(dataset, name="x"):
    return np.concatenate([batch[name] for batch in dataset])


@pytest.mark.parametrize(
    "make",
    [
        lambda data: data,
        lambda data: {"x": data},
        lambda data: [data[:3], data[3:]],
        lambda data: list(data),
        lambda data: [{"x": part} for part in np.split(data, 3)],
        lambda data: (row for row in data),
        lambda data: lambda: iter(data),
        lambda data: data[:, None, :],
    ],
    ids=["array", "mapping", "batches", "samples", "mappings", "generator", "function", "stack"],
)
def test_all_kinds_of_data_give_the_same_batches(make):
    data = samples(6)
    dataset = as_dataset(make(data), FIXED)
    for _ in range(2):  # data is read more than once
        batches = list(dataset)
        assert [batch["x"].shape for batch in batches] == [(2, 3)] * 3
        np.testing.assert_array_equal(joined(dataset), data)
    assert (dataset.samples, len(dataset)) == (6, 3)
    assert dataset.ranges["x"] == (data.min(), data.max())


def test_npz_and_npy_files_give_the_same_batches(tmp_path):
    data = samples(6)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "d.npz", x=data)
        np.testing.assert_array_equal(joined(as_dataset(tmp_path / "d.npz", FIXED)), data)
    np.save(tmp_path / "d.npy", data)
    np.testing.assert_array_equal(joined(as_dataset(str(tmp_path / "d.npy"), FIXED)), data)


def test_batches_of_an_iterable_stay_as_they_are_for_a_symbolic_batch():
    parts = [samples(5), samples(1), samples(3)]
    assert [len(batch["x"]) for batch in as_dataset(parts, FREE)] == [5, 1, 3]


def test_stacked_samples_are_cut_into_small_runs_for_a_symbolic_batch():
    assert [len(batch["x"]) for batch in as_dataset(samples(20), FREE)] == [8, 8, 4]


def test_sequences_of_different_lengths_pass():
    ids = TensorInfo(name="ids", shape=(None, None), dtype="int64")
    data = [np.ones((1, length), np.int64) for length in (3, 5, 4)]
    assert [batch["ids"].shape for batch in as_dataset(data, [ids])] == [(1, 3), (1, 5), (1, 4)]


def test_inputs_without_common_batch_axis_are_taken_whole():
    signature = [info((None, 3)), info((10,), name="table"), info((), name="factor")]
    item = {"x": samples(4), "table": np.ones(10), "factor": 2.0}
    dataset = as_dataset([item, item], signature)
    assert dataset.samples == 2
    assert [batch["factor"].shape for batch in dataset] == [(), ()]


def test_labels_follow_their_samples():
    data = samples(5)
    with pytest.warns(DatasetWarning, match="filled up"):
        dataset = as_dataset({"x": data, "label": np.arange(5)}, FIXED)
    assert dataset.labelled
    assert [b.labels.tolist() for b in dataset.with_labels()] == [[0, 1], [2, 3], [4]]
    assert [b.valid for b in dataset.with_labels()] == [2, 2, 1]


@pytest.mark.parametrize(("signature", "used"), [(FREE, 3), (FIXED, 4), ([info((1, 3))], 3)])
def test_limit_counts_samples_and_fills_fixed_batches(signature, used):
    dataset = as_dataset(samples(9), signature, limit=3)
    assert dataset.samples == used
    np.testing.assert_array_equal(joined(dataset), samples(9)[:used])


def test_limit_stops_an_endless_generator():
    def endless():
        while True:
            yield samples(2)

    assert as_dataset(endless(), FIXED, limit=4).samples == 4


def test_a_generator_is_read_once_and_kept():
    reads = []

    def generator():
        for index in range(3):
            reads.append(index)
            yield samples(2, seed=index)

    dataset = as_dataset(generator(), FIXED)
    first, second = joined(dataset), joined(dataset)
    np.testing.assert_array_equal(first, second)
    assert reads == [0, 1, 2]


def test_a_one_time_iterable_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(iterable_module, "SPOOL_LIMIT", 10_000)
    endless = (samples(2) for _ in itertools.count())
    with pytest.raises(DatasetError, match=r"one-time iterable gave more than .* Set a limit"):
        as_dataset(endless, FIXED)


def test_an_mxnet_iterator_is_reset_before_each_pass():
    class DataIter:
        def __init__(self):
            self.place = 2

        def reset(self):
            self.place = 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.place == 2:
                raise StopIteration
            self.place += 1
            return type("DataBatch", (), {"data": [samples(2)], "label": [np.zeros(2)], "pad": 0})()

    dataset = as_dataset(DataIter(), FIXED)
    assert len(list(dataset)) == len(list(dataset)) == 2


def test_a_checked_dataset_is_taken_as_it_is_or_refitted():
    dataset = as_dataset((row for row in samples(6)), FIXED)
    assert as_dataset(dataset, FIXED) is dataset
    assert as_dataset(dataset, FIXED, limit=2).samples == 2
    assert [len(b["x"]) for b in as_dataset(dataset, FREE)] == [1] * 6
    with pytest.raises(DatasetError, match=r"was checked for input 'x'.* the model has input 'z'"):
        as_dataset(dataset, [info(name="z")])


def test_preprocessing_applies_to_arrays_of_images():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    spec = Preprocess(scale=1 / 255)
    dataset = as_dataset(pixels, [info((1, 3, 8, 8))], preprocess=spec)
    np.testing.assert_array_equal(joined(dataset), spec(pixels))


def test_several_inputs_and_a_preprocessed_one():
    signature = [info((1, 3, 8, 8), name="image"), info((1, 2), name="extra")]
    data = {"image": np.full((2, 8, 8, 3), 9, np.uint8), "extra": np.ones((2, 2))}
    spec = Preprocess(input="image")
    assert joined(as_dataset(data, signature, preprocess=spec), "image").shape == (2, 3, 8, 8)
    with pytest.raises(DatasetError, match=r"which input gets the images\? The model has inputs"):
        as_dataset(data, signature, preprocess=Preprocess())
    with pytest.raises(DatasetError, match=r"no input 'img' The model|no input 'img'"):
        as_dataset(data, signature, preprocess=Preprocess(input="img"))


def nan_data():
    data = samples(6)
    data[3, 1] = np.nan
    return data


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "Inf"), (-np.inf, "Inf")])
@pytest.mark.parametrize("stacked", [True, False])
def test_nan_and_inf_are_refused_naming_tensor_and_sample(value, word, stacked):
    data = nan_data()
    data[3, 1] = value
    with pytest.raises(DatasetError) as caught:
        as_dataset(data if stacked else [data[:2], data[2:]], FREE)
    assert f"input 'x' has {word} in sample 3" in str(caught.value)
    assert "on_bad='skip'" in str(caught.value)


@pytest.mark.parametrize("on_bad", ["skip", BadData.SKIP])
@pytest.mark.parametrize("signature", [FREE, [info((1, 3))]])
def test_samples_with_nan_are_left_out_by_option(on_bad, signature):
    with pytest.warns(
        DatasetWarning, match=r"left out 1 of 6 samples: input 'x' has NaN in sample 3"
    ):
        dataset = as_dataset(nan_data(), signature, on_bad=on_bad)
    np.testing.assert_array_equal(joined(dataset), np.delete(nan_data(), 3, axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(dataset)  # said once


def test_labels_of_skipped_samples_go_with_them():
    with pytest.warns(DatasetWarning, match="left out"):
        dataset = as_dataset({"x": nan_data(), "y": np.arange(6)}, FREE, on_bad="skip")
    assert [b.labels.tolist() for b in dataset.with_labels()] == [[0, 1, 2, 4, 5]]


def test_nothing_left_after_skipping_is_refused():
    with pytest.raises(
        DatasetError, match="all 4 samples hold NaN or Inf: input 'x' has NaN in sample 0"
    ):
        as_dataset(np.full((4, 3), np.nan), FREE, on_bad="skip")


def test_a_whole_item_is_skipped_where_there_is_no_batch_axis():
    signature = [info((None, 3)), info((), name="factor")]
    items = [{"x": samples(2), "factor": factor} for factor in (1.0, 2.0, np.nan)]
    with pytest.warns(DatasetWarning, match="input 'factor' has NaN in sample 2"):
        assert as_dataset(items, signature, on_bad="skip").samples == 2


def test_all_zero_data_is_refused_by_default():
    with pytest.raises(DatasetError, match="input 'x' is zero in all 4 samples"):
        as_dataset(np.zeros((4, 3)), FREE)


@pytest.mark.parametrize("on_zero", ["warn", ZeroData.WARN])
def test_all_zero_data_is_remarked_by_option(on_zero):
    with pytest.warns(DatasetWarning, match="input 'x' is zero in all 4 samples"):
        as_dataset(np.zeros((4, 3)), FREE, on_zero=on_zero)


def test_all_zero_ids_are_fine():
    ids = TensorInfo(name="ids", shape=(None, 3), dtype="int64")
    assert as_dataset(np.zeros((4, 3), np.int64), [ids]).samples == 4


def test_one_sample_works_with_a_warning():
    with pytest.warns(DatasetWarning, match="single sample"):
        dataset = as_dataset(samples(1), FREE)
    assert dataset.samples == 1
    with pytest.warns(DatasetWarning, match="single sample"):
        assert as_dataset(samples(1)[0], FREE).samples == 1


def test_a_leftover_is_remarked():
    with pytest.warns(
        DatasetWarning, match="the last batch has 1 of the 2 samples the model takes"
    ):
        as_dataset(samples(3), FIXED)


@pytest.mark.parametrize("data", [[], iter(()), lambda: iter(()), {"x": np.zeros((0, 3))}])
def test_an_empty_set_is_refused(data):
    with pytest.raises(DatasetError, match=r"gives no samples for input 'x' \(\?, 3\) float32"):
        as_dataset(data, FREE)


def test_an_exhausted_generator_is_refused():
    generator = (row for row in samples(4))
    list(generator)
    with pytest.raises(DatasetError, match=r"one-time iterable .* is exhausted: pass a new one"):
        as_dataset(generator, FREE)


def test_an_iterable_that_cannot_be_repeated_is_found_out():
    class Once:
        def __init__(self):
            self.rows = iter(samples(4))

        def __iter__(self):
            return self.rows

    dataset = as_dataset(Once(), FREE)
    with pytest.raises(DatasetError, match="gave 4 samples at the first pass and 0 at this one"):
        list(dataset)


@pytest.mark.parametrize(
    ("data", "signature", "message"),
    [
        (
            None,
            [info(), info(name="ids")],
            "no data was given for inputs 'x' (1, 3) float32, 'ids'",
        ),
        (3.5, FREE, "input 'x' has shape (), but the model takes (?, 3)"),
        (object(), FREE, "data of type object cannot be read; pass an iterable of batches"),
        (samples(4), [], "the model has no inputs"),
        ({"z": samples(4)}, FREE, "nothing for input 'x' (?, 3) float32 and unknown name 'z'"),
        (
            {"x": samples(4), "label": np.arange(3)},
            FREE,
            "the arrays hold different numbers of samples: 'x' 4, 'labels' 3",
        ),
        (
            [(samples(4), np.arange(3))],
            FREE,
            "batch 0: the tensors hold different numbers of samples: 'x' 4, 'labels' 3",
        ),
        (
            [(samples(4), samples(3))],
            [info((None, 3)), info((None, 3), name="z")],
            "the tensors hold different numbers of samples: 'x' 4, 'z' 3",
        ),
        ([samples(2), samples(2, 4)], FREE, "batch 1: input 'x' has shape (2, 4)"),
        (lambda: 3, FREE, "the data function returned int, expected an iterable of batches"),
        (
            [np.zeros((1, 3))],
            [TensorInfo(name="ids", shape=(1, 3), dtype="int64")],
            "batch 0: input 'ids' has dtype float64, but the model takes int64",
        ),
    ],
)
def test_data_that_does_not_fit_is_refused_before_anything_runs(data, signature, message):
    with pytest.raises(DatasetError) as caught:
        as_dataset(data, signature)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "the limit is 0 samples; expected 1 or more"),
        ({"on_bad": "drop"}, "on_bad is 'drop'; choose one of error, skip"),
        ({"on_zero": "drop"}, "on_zero is 'drop'; choose one of error, warn"),
    ],
)
def test_a_wrong_option_is_refused(options, message):
    with pytest.raises(DatasetError, match=message):
        as_dataset(samples(2), FREE, **options)


def test_memory_does_not_grow_with_the_data(tmp_path):
    def peak(count):
        path = tmp_path / f"{count}.npz"
        np.savez_compressed(path, x=np.ones((count, 5000), np.float32))
        gc.collect()
        tracemalloc.start()
        as_dataset(path, [info((None, 5000))])
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    assert peak(2000) < 1.2 * peak(100)


def test_a_torch_loader_with_labels_is_read_as_often_as_wanted():
    torch = pytest.importorskip("torch")
    data, labels = samples(6), np.arange(6)
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(data), torch.from_numpy(labels))
    dataset = as_dataset(torch.utils.data.DataLoader(pairs, batch_size=4), FREE)
    assert [batch.labels.tolist() for batch in dataset.with_labels()] == [[0, 1, 2, 3], [4, 5]]
    np.testing.assert_array_equal(joined(dataset), data)
