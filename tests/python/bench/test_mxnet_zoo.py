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
        block.initialize(module.init.Xavier())
        block(module.nd.array(batch))
        return block

    monkeypatch.setattr(mxnet_zoo, "_network", small)
    return module


def test_a_network_is_imported_twice_compared_quantized_and_timed(mx):
    result = mxnet_zoo.measure(mx, "small", rounds=2, calibration=2)
    assert 0 < result.error <= mxnet_zoo.FLOAT_ERROR
    assert result.sqnr_db > 25
    assert result.float_ms.median > 0 and result.int8_ms.median > 0


def test_all_networks_of_the_zoo_are_named(mx):
    names = mxnet_zoo._names(mx)
    assert len(names) == 34 and {"alexnet", "inceptionv3", "vgg19_bn"} <= set(names)
    with pytest.raises(ConfigError, match="no network matches 'lenet'"):
        mxnet_zoo.mxnet_zoo(only=["lenet"])


def test_a_network_that_differs_fails_the_command_after_the_table(mx, monkeypatch, tmp_path):
    right = mxnet_zoo.measure

    def wrong(*args):
        return dataclasses.replace(right(*args), error=0.5)

    monkeypatch.setattr(mxnet_zoo, "measure", wrong)
    table = tmp_path / "table.md"
    with pytest.raises(BackendError, match=r"differ from MXNet .* output: alexnet"):
        mxnet_zoo.mxnet_zoo(only=["alexnet"], rounds=0, calibration=2, markdown=table)
    assert "| alexnet | 5.0e-01 |" in table.read_text()


def test_without_mxnet_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet", None)
    with pytest.raises(FrontendError, match=r'pip install "tvm-quant\[mxnet\]"'):
        mxnet_zoo.mxnet_zoo()
