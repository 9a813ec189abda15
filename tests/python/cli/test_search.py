"""Searching bits, and controlling accuracy, from the command line."""

import re

import pytest

from tvm_quant.artifact import Artifact
from tvm_quant.config import QuantizeConfig

NEAREST = ["--set", "weight_rounding=nearest"]


def test_search_writes_a_config_that_quantize_takes(invoke, small, tmp_path):
    bits, path = tmp_path / "bits.yaml", tmp_path / "small.tvmq"
    result = invoke(
        *("search", small.model, "--data", small.calibration, "--weight-bytes", "0.5"),
        *("--choices", "2,4,8", *NEAREST, "-o", bits),
    )
    assert result.exit_code == 0, result.output
    assert re.search(r"weights take [345]\d\.\d% of their bytes with 8 bits", result.stdout)
    for node in ("stem.conv", "body.conv", "classifier"):
        assert re.search(rf"^{node} +W[248] +-?\d+\.\d dB +\d", result.stdout, re.MULTILINE)
    config = QuantizeConfig.load(bits)
    assert {layer.nbit_weight for layer in config.overrides.values()} <= {2, 4}
    again = invoke(
        "quantize", small.model, "--data", small.calibration, "--config", bits, "-o", path
    )
    assert again.exit_code == 0, again.output
    assert Artifact.load(path).config == config


def test_max_drop_gives_layers_back(invoke, small, tmp_path):
    path = tmp_path / "small.tvmq"
    result = invoke(
        *("quantize", small.model, "--data", small.calibration, "-o", path, *NEAREST),
        *("--set", "nbit_weight=2", "--validation", small.evaluation),
        *("--max-drop", "0", "--metric", "top1"),
    )
    assert result.exit_code == 0, result.output
    assert re.search(r"^everything \(float\) +100\.00 +0\.00", result.stdout, re.MULTILINE)
    assert re.search(r"^nothing \(int8\) +\d+\.\d+ +\d+\.\d+ ", result.stdout, re.MULTILINE)
    loaded = Artifact.load(path)
    assert loaded.config.skip
    kept = {row.node for row in loaded.table if row.reason and "skip pattern" in row.reason}
    assert kept == set(loaded.config.skip)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-drop", "1", "--min-score", "2"], "either max_drop or min_score"),
        (["--validation", "x.npz"], "--validation is for --max-drop or --min-score"),
        (["--max-drop", "1", "--metric", "sqnr"], "by min_score"),
    ],
)
def test_limits_that_make_no_sense_are_refused(refused, small, tmp_path, options, message):
    path = tmp_path / "small.tvmq"
    arguments = ("quantize", small.model, "--data", small.calibration, "-o", path)
    refused(*arguments, *options, message=message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "A budget has one limit"),
        (["--weight-bits", "4", "--choices", "2,x"], "--choices is '2,x'; expected numbers"),
    ],
)
def test_searches_that_make_no_sense_are_refused(refused, small, tmp_path, options, message):
    arguments = ("search", small.model, "--data", small.calibration, "-o", tmp_path / "b.yaml")
    refused(*arguments, *options, message=message)


def test_limits_need_data(refused, small, tmp_path):
    refused(
        *("quantize", small.model, "--calibrate", "global_scale", "-o", tmp_path / "a.tvmq"),
        *("--max-drop", "1"),
        message="order layers by calibration data: give --data",
    )
