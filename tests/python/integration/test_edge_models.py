"""Small networks with the traps that users of such tools report, each against its own bar.

The script that writes them stands in the shared folder. Their networks, data and seeds are fixed.
"""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from tvm_quant import Runner, load, quantize
from tvm_quant.config import QuantizeConfig
from tvm_quant.dataset import DatasetWarning
from tvm_quant.errors import DatasetError
from tvm_quant.ir import bindings, op_name
from tvm_quant.op import Role, role_of
from tvm_quant.report import sqnr_db

#: Output SQNR in dB that the default config has to reach.
BARS = {
    "baseline": 34,
    "dead_channel": 34,
    "tiny_w_big_bias": 34,
    "outlier_calib": 25,
    "concat_1_vs_100": 25,
    "if_subgraph": 30,
    "convtranspose_group": 28,
    "conv1d": 30,
    "transformer_block": 33,
    "silu_hardswish": 28,
    "shared_weight_bias": 30,
}
#: Contractions that run on integers.
LAYERS = {"if_subgraph": 1, "shared_weight_bias": 2, "concat_1_vs_100": 3, "transformer_block": 7}


@pytest.fixture(scope="module")
def folder(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("edge")
    subprocess.run(
        [sys.executable, str(shared / "tools" / "edge_models.py"), str(target)], check=True
    )
    return target


def arrays(path):
    with np.load(path) as stored:
        return dict(stored)


def integer_layers(mod):
    return [
        binding
        for binding in bindings(mod["main"])
        if role_of(binding.value) is Role.CONTRACTION and "int" in str(binding.var.ty.dtype)
    ]


def output_sqnr(folder, name, config=None):
    """(SQNR of the worst output, the integer module), on the data of the model."""
    mod, params = load(folder / name / "model.onnx")
    int8 = quantize(mod, params, arrays(folder / name / "calib.npz"), config)
    inputs = arrays(folder / name / "eval.npz")
    pairs = zip(Runner(mod).run(inputs), Runner(int8).run(inputs), strict=True)
    return min(sqnr_db(exact, result) for exact, result in pairs), int8


@pytest.mark.parametrize("name", BARS)
def test_the_default_config_meets_the_bar(folder, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # NaN and overflow in NumPy
        sqnr, int8 = output_sqnr(folder, name)
    assert sqnr >= BARS[name]
    assert len(integer_layers(int8)) == LAYERS.get(name, 2)


def test_one_sample_works_and_warns(folder):
    with pytest.warns(DatasetWarning, match="a single sample"):
        sqnr, int8 = output_sqnr(folder, "one_sample")
    assert sqnr >= 20
    assert len(integer_layers(int8)) == 2


@pytest.mark.parametrize(("name", "value"), [("nan_in_calib", "NaN"), ("inf_in_calib", "Inf")])
def test_values_that_are_not_finite_are_named_or_skipped(folder, name, value):
    with pytest.raises(DatasetError, match=f"input 'x' has {value} in sample 3"):
        output_sqnr(folder, name)
    with pytest.warns(DatasetWarning):
        sqnr, _int8 = output_sqnr(folder, name, QuantizeConfig(on_bad="skip"))
    assert sqnr >= 34


def test_data_of_zeros_is_refused_by_name(folder):
    with pytest.raises(DatasetError, match="input 'x' is zero in all 16 samples"):
        output_sqnr(folder, "zero_calib")


def test_a_shared_weight_is_stored_once(folder):
    _sqnr, int8 = output_sqnr(folder, "shared_weight_bias")
    weights = [binding.value.args[1] for binding in integer_layers(int8)]
    assert [op_name(binding.value) for binding in integer_layers(int8)] == ["relax.nn.conv2d"] * 2
    assert weights[0].same_as(weights[1])
