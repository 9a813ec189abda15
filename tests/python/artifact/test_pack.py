"""Packing weights of few bits."""

import zipfile

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from realized import normal
from tvm_quant import QuantizeConfig, quantize
from tvm_quant.artifact import Artifact, Provenance
from tvm_quant.artifact.pack import (
    bits_needed,
    pack_codes,
    pack_tensors,
    unpack_codes,
    unpack_tensors,
)
from tvm_quant.errors import ArtifactError
from tvm_quant.ir import bindings, constant_value
from tvm_quant.ir.bindings import flat_operands


@given(st.lists(st.integers(-128, 127), min_size=1), st.integers(0, 7))
def test_codes_come_back(values, spare):
    codes = np.int8(values)
    bits = min(8, bits_needed(codes) + spare)
    packed = pack_codes(codes, bits)
    assert len(packed) == -(-len(codes) * bits // 8)
    np.testing.assert_array_equal(unpack_codes(packed, bits, len(codes)), codes)


def module(array):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(array.shape, str(array.dtype)))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, relax.const(array))))
    return builder.get()


@pytest.mark.parametrize(
    ("array", "size"),
    [
        (np.int8([[-7, 7, 1]] * 50), 75),
        (np.int8([-1, 0, 1, 1] * 25), 25),
        (np.int8([-127, 1] * 50), 0),  # needs all 8 bits
        (np.int8([1, 2, 3]), 0),  # too few to be worth a note
        (np.uint8([1, 2] * 50), 0),
        (np.float32([1, 2] * 50), 0),
    ],
)
def test_a_module_comes_back(array, size):
    mod = module(array)
    text = tvm.ir.save_json(mod)
    without, packed = pack_tensors(text)
    assert len(packed) == size
    assert unpack_tensors(without, packed) == text


def test_missing_bits_are_an_error():
    without, packed = pack_tensors(tvm.ir.save_json(module(np.int8([1, 2] * 50))))
    with pytest.raises(ArtifactError, match="packed weights end at byte 37, expected 38 or more"):
        unpack_tensors(without, packed[:-1])


def network():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 16, 8, 8), "float32"))
    with builder.function("main", [x]):
        y = builder.emit(relax.op.nn.conv2d(x, relax.const(normal(32, 16, 3, 3) / 9)), "conv")
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("bits", [2, 4])
def test_weights_take_their_bits_in_a_file(bits, tmp_path):
    data = normal(4, 16, 8, 8, seed=1)
    config = QuantizeConfig(nbit_weight=bits, weight_rounding="nearest")
    mod = quantize(network(), None, data, config)
    path = tmp_path / "m.tvmq"
    Artifact(module=mod, config=config, provenance=Provenance(created="")).save(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("packed.bin").file_size == 32 * 16 * 3 * 3 * bits / 8
    loaded = Artifact.load(path).module
    tvm.ir.assert_structural_equal(loaded, mod)
    for one, other in zip(bindings(loaded["main"]), bindings(mod["main"]), strict=True):
        if isinstance(one.value, relax.Call):
            pairs = zip(flat_operands(one.value), flat_operands(other.value), strict=True)
            for left, right in pairs:
                np.testing.assert_array_equal(constant_value(left), constant_value(right))
