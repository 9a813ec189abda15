import json

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import backend_networks as networks
import plain_tvm
from tvm_quant.backend import compile
from tvm_quant.backend.cpu import tune
from tvm_quant.backend.cpu.tile import Tile
from tvm_quant.backend.cpu.tune import TileCache, Tuner
from tvm_quant.errors import BackendError

SHAPE = (1, 16, 12, 12)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(tune.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def network():
    return networks.integer_conv(SHAPE, (32, 16, 5, 5), padding=2)


def run(executable, x):
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def test_a_tuned_network_computes_the_same(folder):
    x = networks.codes(SHAPE)
    tuned = compile(network(), tune=True)
    np.testing.assert_array_equal(run(tuned, x), plain_tvm.run_one(network(), x))
    (tiles,) = json.loads((folder / "tiles.json").read_text()).values()
    assert len(tiles) == 1


def test_a_kernel_is_measured_once(monkeypatch):
    compile(network(), tune=True)
    monkeypatch.setattr(Tuner, "fastest", lambda *_: pytest.fail("measured again"))
    compile(network(), tune=True)


def test_the_remembered_tile_is_used(monkeypatch):
    chosen = []
    monkeypatch.setattr(Tuner, "fastest", lambda _self, _func, tiles: tiles[-1])
    schedule = tune.schedule_contraction

    def spy(func, isa, tile):
        chosen.append(tile)
        return schedule(func, isa, tile)

    monkeypatch.setattr(tune, "schedule_contraction", spy)
    x = networks.codes(SHAPE)
    tuned = [compile(network(), tune=True) for _ in range(2)]
    assert len(chosen) == 2 and chosen[0] == chosen[1]
    np.testing.assert_array_equal(run(tuned[1], x), run(compile(network()), x))


def test_without_tuning_no_file_is_written(folder):
    compile(network())
    assert not folder.exists()


def test_tiles_that_others_measured_meanwhile_stay():
    mine, theirs = TileCache(), TileCache()
    theirs.add("a", Tile(rows=1, vectors=2))
    mine.add("b", Tile(rows=3, vectors=4))
    again = TileCache()
    assert again.get("a") == Tile(rows=1, vectors=2)
    assert again.get("b") == Tile(rows=3, vectors=4)
    assert again.get("c") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"cpu": {"kernel": [1]}}', '{"cpu": {"kernel": 1}}'])
def test_a_damaged_file_is_named(folder, text):
    folder.mkdir()
    (folder / "tiles.json").write_text(text)
    with pytest.raises(
        BackendError, match=r"tiles\.json' cannot be read as a table .*Delete the file"
    ):
        compile(network(), tune=True)


def test_a_target_that_cannot_run_here_is_not_tuned():
    target = {"kind": "llvm", "mtriple": "riscv64-linux-gnu", "mcpu": "generic-rv64"}
    with pytest.raises(BackendError, match="tune=True measures kernels on this machine"):
        compile(network(), target, tune=True)


def test_a_symbolic_batch_is_tuned_for_one_sample(folder):
    mod = networks.integer_conv((tirx.Var("n", "int64"), *SHAPE[1:]), (32, 16, 5, 5), padding=2)
    x = networks.codes((2, *SHAPE[1:]))
    np.testing.assert_array_equal(run(compile(mod, tune=True), x), run(compile(mod), x))
    assert (folder / "tiles.json").exists()


def test_a_kernel_that_one_pixel_does_not_fill_is_left_to_the_model(folder):
    side = tirx.Var("side", "int64")
    mod = networks.integer_conv((1, 16, side, side), (32, 16, 3, 3))
    x = networks.codes((1, 16, 9, 9))
    np.testing.assert_array_equal(run(compile(mod, tune=True), x), run(compile(mod), x))
    assert not folder.exists()
