import pytest
from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features

from tvm_quant.backend import host_target, resolve_target
from tvm_quant.errors import BackendError


def test_plain_llvm_means_this_machine():
    assert resolve_target("llvm").attrs["mcpu"] == host_target().attrs["mcpu"]


def test_a_target_with_a_cpu_is_taken_as_it_is():
    target = Target({"kind": "llvm", "mcpu": "skylake"})
    assert str(resolve_target(target)) == str(target)


@pytest.mark.isa("avx2", "fma")
def test_the_host_has_the_features_that_linux_reports():
    assert {"avx2", "fma"} <= llvm_get_cpu_features(host_target())


def test_an_unknown_target_is_refused_with_the_valid_ones():
    with pytest.raises(
        BackendError, match=r"Unknown target 'quantum'.*Valid kinds are .*cuda.*llvm"
    ):
        resolve_target("quantum")
