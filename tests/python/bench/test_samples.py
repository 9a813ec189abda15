import numpy as np
import pytest

from tvm_quant.bench.samples import Column, InMemory, OnDisk, Samples


def samples(count=5, **options):
    stored = InMemory(np.arange(count))
    return Samples.all_of({"x": Column(stored=stored, prepare=np.float32)}, **options)


def values(found):
    return [batch["x"].tolist() for batch in found]


def test_iterating_gives_one_prepared_sample_at_a_time_again_and_again():
    found = samples(2)
    assert values(found) == [[0.0], [1.0]]
    assert values(found) == [[0.0], [1.0]]
    assert next(iter(found))["x"].dtype == np.float32


def test_the_last_batch_is_filled_up_with_its_last_sample():
    assert values(samples().batches(3)) == [[0, 1, 2], [3, 4, 4]]


def test_a_part_is_the_first_samples():
    assert values(samples().limited(2)) == [[0], [1]]


def test_a_part_of_spaced_samples_is_evenly_spaced_and_keeps_its_labels():
    found = samples(6, labels=list("abcdef"), spaced=True).limited(3)
    assert values(found) == [[0], [2], [4]]
    assert found.labels == ["a", "c", "e"]


def test_a_part_larger_than_the_whole_is_the_whole():
    assert len(samples().limited(9)) == 5
    assert len(samples().limited(None)) == 5


def test_labels_of_an_array_follow_their_samples():
    found = samples(labels=np.arange(5) * 10).limited(2)
    np.testing.assert_array_equal(found.labels, [0, 10])


def test_values_on_disk_equal_those_in_memory(tmp_path):
    array = np.random.default_rng(0).integers(0, 255, (4, 2, 2), np.uint8)
    np.save(tmp_path / "x.npy", array)
    stored = OnDisk(tmp_path / "x.npy")
    assert len(stored) == 4
    np.testing.assert_array_equal(stored.rows(np.array([3, 0])), array[[3, 0]])


@pytest.mark.parametrize("size", [1, 2])
def test_inputs_of_a_batch_belong_to_the_same_samples(size):
    columns = {name: Column(stored=InMemory(np.arange(4))) for name in "ab"}
    for batch in Samples.all_of(columns).batches(size):
        np.testing.assert_array_equal(batch["a"], batch["b"])
