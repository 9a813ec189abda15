"""Checkpoints that MXNet wrote, with the results that it computed itself."""

import numpy as np
import pytest

import tvm_quant
from plain_tvm import run_one
from tvm_quant.transform import Prepare

#: Largest error, relative to the largest output.
FLOAT_ERROR = 1e-5

#: Accuracy that 8 bits may cost, in points.
MOST_LOST = 0.3


def references(folder, name):
    with np.load(folder / f"{name}-reference.npz") as stored:
        arrays = dict(stored)
    data = arrays.pop("data").astype("float32")
    return data, [arrays[key] for key in sorted(arrays)]


@pytest.mark.parametrize("name", ["mnist_gluon", "squeezenet1.1", "lffd_lp_small"])
def test_checkpoints_compute_what_mxnet_computes(shared, name):
    folder = shared / "models" / "mxnet"
    data, wanted = references(folder, name)
    mod, _ = tvm_quant.load(folder / f"{name}-symbol.json", shapes={"data": data.shape})
    results = tvm_quant.Runner(Prepare()(mod), "llvm").run({"data": data})
    assert len(results) == len(wanted)
    for got, value in zip(results, wanted, strict=True):
        assert np.abs(got - value).max() <= FLOAT_ERROR * np.abs(value).max()


def test_a_checkpoint_of_2017_is_read(shared):
    """Attributes under 'attr', arrays of the first magic number, a label that nobody needs."""
    path = shared / "models" / "mxnet" / "legacy_linear-symbol.json"
    x = np.array([[0, 0], [1, 0], [0, 1], [3, 4]], "float32")
    mod, _ = tvm_quant.load(path, shapes={"data": x.shape})
    np.testing.assert_allclose(run_one(mod, x)[:, 0], x @ [1.0, 2.0], atol=1e-4)


def test_a_network_of_gluon_keeps_its_accuracy_in_8_bits(shared):
    path = shared / "models" / "mxnet" / "mnist_gluon-symbol.json"
    calibration, evaluation = (
        np.load(shared / "data" / "mnist" / f"mnist_{name}.npz")
        for name in ("calib_500", "eval_2000")
    )
    images = evaluation["x"][:, None].astype("float32") / 255
    mod, params = tvm_quant.load(path, shapes={"data": (50, 1, 28, 28)})
    int8 = tvm_quant.quantize(mod, params, calibration["x"][:, None].astype("float32") / 255)

    def accuracy(network):
        runner = tvm_quant.Runner(network, "llvm")
        batches = images.reshape(-1, 50, 1, 28, 28)
        found = np.concatenate([runner.run({"data": batch})[0].argmax(1) for batch in batches])
        return 100 * (found == evaluation["y"]).mean()

    exact = accuracy(Prepare()(mod))
    assert exact == pytest.approx(97.0, abs=0.1)
    assert accuracy(int8) >= exact - MOST_LOST
