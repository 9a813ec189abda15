import dataclasses

import numpy as np
import pytest
from tvm.target import Target

from tvm_quant.backend import host_target
from tvm_quant.backend.cpu import check, isa_of
from tvm_quant.backend.cpu.check import LAYERS, check_kernel, check_kernels


def test_the_kernels_of_this_machine_equal_numpy():
    checks = list(check_kernels())
    assert [found.layer for found in checks] == list(LAYERS)
    assert [found.differing for found in checks] == [0] * len(LAYERS)
    assert all(found.passed and found.elements > 0 and found.gops > 0 for found in checks)


def test_a_target_with_fewer_features_is_checked_with_its_own_kernels():
    plain = Target({"kind": "llvm", "mtriple": str(host_target().attrs["mtriple"])})
    found = check_kernel(LAYERS[0], plain)
    assert found.passed
    dot = isa_of(plain).dot("uint8")
    expected = f"{dot.instruction}, Winograd" if dot else "vectorized by LLVM"
    assert found.instruction == expected


@pytest.mark.parametrize("layer", [LAYERS[0], LAYERS[-1]], ids=["integers", "float32"])
def test_a_wrong_element_is_counted(monkeypatch, layer):
    right = check._expected

    def wrong(*args):
        expected = np.array(right(*args))
        expected.flat[5] += 1
        return expected

    monkeypatch.setattr(check, "_expected", wrong)
    found = check_kernel(layer, host_target())
    assert (found.differing, found.passed) == (1, False)


def test_operations_count_both_halves_of_a_multiply_add():
    layer = dataclasses.replace(LAYERS[0], inputs=8, outputs=6, size=5, kernel=3, stride=2)
    assert layer.operations == 2 * 9 * 6 * 8 * 9
    assert dataclasses.replace(layer, groups=2).operations == 9 * 6 * 8 * 9
