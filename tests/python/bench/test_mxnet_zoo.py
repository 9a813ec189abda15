"""The zoo of MXNet, with a network that takes no time in the place of its own."""

import dataclasses
import sys

import pytest

from mxnet_live import installed
from tvm_quant.bench import mxnet_zoo
from tvm_quant.errors import BackendError, ConfigError, FrontendError


@pytest.fixture
def mx(monkeypatch):
    """MXNet, with one small network for all names."""
    module = installed()

    def small(_mxnet, _name, batch):
        block = module.gluon.nn.HybridSequential(prefix="small_")
        with block.name_scope():
            block.add(module.gluon.nn.Conv2D(8, 3, strides=8, activation="relu"))
            block.add(module.gluon.nn.GlobalAvgPool2D(), module.gluon.nn.Dense(4))
        module.random.seed(0)
        block.initialize(module.init.Xavier())
        block(module.nd.array(batch))
        return block

    monkeypatch.setattr(mxnet_zoo, "_network", small)
    return module


def test_a_network_is_imported_twice_compared_quantized_and_timed(mx):
    result = mxnet_zoo.measure("alexnet", rounds=2, calibration=2)
    assert 0 < result.error <= mxnet_zoo.FLOAT_ERROR
    assert result.sqnr_db > 15
    assert result.float_ms.median > 0 and result.int8_ms.median > 0


def test_all_networks_of_the_zoo_are_named(mx):
    """MXNet names them all where it knows none."""
    with pytest.raises(ValueError, match="alexnet") as error:
        mx.gluon.model_zoo.vision.get_model("")
    assert set(mxnet_zoo.NETWORKS) == set(str(error.value).split("\n\t")[1:])
    assert len(mxnet_zoo.NETWORKS) == 34


def test_an_unknown_network_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="no network matches 'lenet'; there are alexnet, dense"):
        mxnet_zoo.mxnet_zoo(only=["lenet"])


def test_a_network_that_differs_fails_the_command_after_the_table(mx, monkeypatch, tmp_path):
    def wrong(*args):
        return dataclasses.replace(mxnet_zoo.measure(*args), error=0.5)

    monkeypatch.setattr(mxnet_zoo, "_in_process", wrong)
    table = tmp_path / "table.md"
    with pytest.raises(BackendError, match=r"differ from MXNet .* output: alexnet"):
        mxnet_zoo.mxnet_zoo(only=["alexnet"], rounds=0, calibration=2, markdown=table)
    assert "| alexnet | 5.0e-01 |" in table.read_text()


def test_an_interrupt_leaves_what_was_measured(mx, monkeypatch, tmp_path):
    def interrupted(name, *args):
        if name != "alexnet":
            raise KeyboardInterrupt
        return mxnet_zoo.measure(name, *args)

    monkeypatch.setattr(mxnet_zoo, "_in_process", interrupted)
    table = tmp_path / "table.md"
    with pytest.raises(KeyboardInterrupt):
        mxnet_zoo.mxnet_zoo(only=["alexnet", "vgg*"], rounds=0, calibration=2, markdown=table)
    assert "| alexnet |" in table.read_text() and "vgg" not in table.read_text()


def test_without_mxnet_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet", None)
    with pytest.raises(FrontendError, match=r'pip install "tvm-quant\[mxnet\]"'):
        mxnet_zoo.mxnet_zoo()
