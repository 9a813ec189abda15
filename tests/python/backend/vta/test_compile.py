"""`compile(mod, "vta")`: a library that another process loads."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

import vta_networks as nets
from tvm_quant import Runner, compile
from tvm_quant.backend.vta import VtaConfig
from tvm_quant.errors import TvmQuantError

REPOSITORY = Path(__file__).parents[4]

RELOAD = """
import sys
import numpy as np
import tvm
from tvm import relax
import tvm_quant  # registers tvm_quant.vta.run
library, data, output = sys.argv[1:]
machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
np.save(output, machine["main"](tvm.runtime.tensor(np.load(data))).numpy())
"""


def two_layers(emit, x):
    for seed in (1, 2):
        acc = nets.convolution(emit, x, nets.weights(8, 8, 3, 3, seed=seed), range(8), padding=1)
        x = emit(nets.scaled(acc, 9, low=0))
    return x


@pytest.fixture(scope="module")
def network():
    """(module, input, output of TVM's own build)."""
    mod, x = nets.build(two_layers, x=(1, 8, 6, 6)), nets.codes(1, 8, 6, 6)
    return mod, x, Runner(mod).run({"x": x})[0]


def test_the_library_runs_in_a_process_that_knows_one_function(network, tmp_path):
    mod, x, expected = network
    before = tvm.ir.save_json(mod)
    compile(mod, "vta").export_library(str(tmp_path / "net.so"))
    assert tvm.ir.save_json(mod) == before
    np.save(tmp_path / "x.npy", x)
    done = subprocess.run(
        [sys.executable, "-c", RELOAD, *(tmp_path / n for n in ("net.so", "x.npy", "y.npy"))],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


@pytest.mark.parametrize(
    "sizes",
    [
        {"log_inp_buff_size": 12, "log_acc_buff_size": 14, "log_wgt_buff_size": 14},
        {"log_block": 5, "log_wgt_buff_size": 20},
        {"log_uop_buff_size": 10},
    ],
    ids=["small memories", "blocks of 32", "few micro-ops"],
)
def test_other_sizes_give_the_same(network, sizes):
    mod, x, expected = network
    target = {"kind": "vta", "config": VtaConfig(**sizes).to_json()}
    np.testing.assert_array_equal(Runner(mod, target).run({"x": x})[0], expected)


def test_a_chip_that_is_too_small_is_refused(network):
    mod, _x, _expected = network
    config = VtaConfig(log_wgt_buff_size=11, log_acc_buff_size=9, log_inp_buff_size=7)
    with pytest.raises(TvmQuantError, match="does not fit the chip"):
        compile(mod, {"kind": "vta", "config": config.to_json()})
