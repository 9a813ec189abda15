import os
import stat

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from statistics_equal import assert_same_statistics
from tvm_quant.errors import ArtifactError, CalibrationError
from tvm_quant.statistics import Statistics, TensorStatistics, storage


def shard(seed: int, samples: int = 2, names: tuple[str, ...] = ("x", "y")) -> Statistics:
    rng = np.random.default_rng(seed)
    tensors = {
        name: TensorStatistics.of(
            *rng.normal(size=(samples, 1, 3, 5)).astype(np.float32), axis=1 if name == "x" else None
        )
        for name in names
    }
    return Statistics(tensors, samples=samples, fingerprint="abc")


def test_a_saved_file_loads_to_the_same_bits(tmp_path):
    statistics = shard(0)
    statistics.save(tmp_path / "stats.npz")
    assert_same_statistics(Statistics.load(tmp_path / "stats.npz"), statistics)


def test_no_statistics_save_and_load(tmp_path):
    Statistics().save(tmp_path / "stats")
    assert_same_statistics(Statistics.load(tmp_path / "stats"), Statistics())


def test_saving_replaces_the_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "stats.npz"
    path.write_text("old")
    shard(0).save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["stats.npz"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "stats.npz"
    shard(0).save(path)

    def fail(stream, **_arrays):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.np, "savez_compressed", fail)
    with pytest.raises(ArtifactError, match=r"Cannot write .*stats.npz': No space left on device"):
        shard(1).save(path)
    monkeypatch.undo()
    assert_same_statistics(Statistics.load(path), shard(0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["stats.npz"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no statistics file"),
        (b"hello world", "is no statistics file"),
        (b"PK\x03\x04 cut off", "is no statistics file"),
    ],
)
def test_foreign_files_are_refused(tmp_path, content, message):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        Statistics.load(path)


def test_other_numpy_files_are_refused(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros(3))
    np.save(tmp_path / "data.npy", np.zeros(3))
    with pytest.raises(ArtifactError, match=r"it is an archive of \['x'\]"):
        Statistics.load(tmp_path / "data.npz")
    with pytest.raises(ArtifactError, match="a single NumPy array"):
        Statistics.load(tmp_path / "data.npy")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"none.npz': No such file"):
        Statistics.load(tmp_path / "none.npz")


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "stats.npz"
    shard(0).save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ArtifactError, match="no readable NumPy archive"):
        Statistics.load(path)


def test_a_newer_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "VERSION", 99)
    shard(0).save(tmp_path / "stats.npz")
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match="has version 99; this tvm_quant reads version 2"):
        Statistics.load(tmp_path / "stats.npz")


def test_merging_in_a_fixed_order_gives_the_same_bits():
    shards = [shard(seed) for seed in range(5)]
    total = Statistics()
    for part in shards:
        total.merge(part)
    assert_same_statistics(total, Statistics.merged(shards))
    assert total.samples == 10
    assert_array_equal(
        total["x"].sample_max, np.concatenate([part["x"].sample_max for part in shards])
    )


def test_shards_of_different_tensors_or_networks_do_not_merge():
    with pytest.raises(CalibrationError, match=r"tensor.s. 'y' are in one shard only"):
        shard(0).merge(shard(1, names=("x",)))
    other = shard(1)
    other.fingerprint = "def"
    with pytest.raises(CalibrationError, match="two different networks"):
        shard(0).merge(other)
