"""Whole networks against what LiteRT 2.3.0 gave: all codes are equal, for three sets of kernels."""

import io
import re
import zipfile

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_quant
from plain_tvm import run_one
from tvm_quant.ir import io_signature

pytest.importorskip("tflite")

NETWORKS = (
    "ad01_autoencoder_int8",
    "ic_resnet8_int8",
    "kws_dscnn_int8",
    "sww_int8",
    "vww_mobilenet025_int8",
)
#: Names of the kernel sets here and in the files.
SETS = {"xnnpack": "xnnpack", "builtin": "builtin", "reference": "ref"}


def results(path, rounding, inputs):
    """Codes of one sample after the other."""
    mod = tvm_quant.quantize(tvm_quant.load(path, rounding=rounding)[0])
    machine = relax.VirtualMachine(tvm_quant.compile(mod, "llvm"), tvm.cpu())
    return np.concatenate([machine["main"](tvm.runtime.tensor(x[None])).numpy() for x in inputs])


@pytest.mark.parametrize("rounding", SETS)
@pytest.mark.parametrize("name", NETWORKS)
def test_mlperf_tiny(shared, name, rounding):
    folder = shared / "models/mlperf_tiny"
    stored = np.load(folder / f"golden_litert_2.3.0/{name}.npz")
    got = results(folder / f"{name}.tflite", rounding, stored["x"])
    np.testing.assert_array_equal(got, stored[SETS[rounding]])


def test_keywords_are_known_as_well_as_published(shared):
    folder = shared / "models/mlperf_tiny"
    data = np.load(folder / "eval/kws01_mfcc_int8_first500.npz")
    got = results(folder / "kws_dscnn_int8.tflite", None, data["x"])
    assert (got.argmax(axis=1) == data["y"]).mean() == pytest.approx(0.898)


def test_the_reference_is_what_plain_tvm_computes_too(shared):
    folder = shared / "models/mlperf_tiny"
    stored = np.load(folder / "golden_litert_2.3.0/sww_int8.npz")
    mod = tvm_quant.quantize(tvm_quant.load(folder / "sww_int8.tflite", rounding="reference")[0])
    np.testing.assert_array_equal(run_one(mod, stored["x"][:1]), stored["ref"][:1])


SEANET = ["add/add3", "conv/conv5", "leaky_relu/leaky_relu2", "pad/pad1", "sub/sub0"]
SEANET += ["strided_slice/strided_slice7", "transpose_conv/transpose_conv3", "quantize/quantize0"]


@pytest.mark.parametrize("name", SEANET)
def test_16_bit_operators(shared, name):
    archive = zipfile.ZipFile(shared / "models/tflite_micro/seanet_int16_goldens.zip")
    mod = tvm_quant.quantize(tvm_quant.load(archive.read(f"{name}.tflite"))[0])
    files = sorted(file for file in archive.namelist() if file.startswith(f"{name}_input"))
    inputs = [
        numbers(archive, file).reshape(info.shape).astype(info.dtype)
        for file, info in zip(files, io_signature(mod), strict=True)
    ]
    expected = numbers(archive, f"{name}_golden_int16.csv")
    np.testing.assert_array_equal(run_one(mod, *inputs).ravel(), expected)


def numbers(archive, file):
    text = io.TextIOWrapper(archive.open(file)).read()
    return np.array([float(word) for word in re.split(r"[,\s]+", text.strip()) if word])


@pytest.mark.parametrize("name", ["person_detect", "micro_speech_quantized", "hello_world_int8"])
def test_networks_for_microcontrollers_are_integers(shared, name):
    mod = tvm_quant.quantize(
        tvm_quant.load(shared / f"models/tflite_micro/{name}.tflite", rounding="reference")[0]
    )
    (info,) = io_signature(mod)
    codes = np.random.default_rng(0).integers(-128, 128, info.shape).astype("int8")
    assert run_one(mod, codes).dtype == np.int8
