import json

import pytest
from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features

from tvm_quant.backend import host_target, resolve_target
from tvm_quant.backend.target import backend_of
from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.target import VtaOptions, vta_options
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


def test_a_target_for_which_this_tvm_makes_no_code_is_refused_with_those_for_which_it_does():
    with pytest.raises(BackendError, match=r"generator for vulkan\. Compile for one of .*opencl"):
        resolve_target("vulkan")


@pytest.mark.parametrize(
    "target", ["vta", {"kind": "vta"}, '{"kind": "vta"}'], ids=["name", "mapping", "JSON"]
)
def test_vta_is_a_device_beside_this_machine(target):
    resolved = resolve_target(target)
    assert resolved.attrs["mcpu"] == host_target().attrs["mcpu"]
    assert (backend_of(resolved), backend_of(host_target())) == ("vta", "llvm")
    assert vta_options(resolved) == VtaOptions()


def test_vta_takes_its_sizes_from_a_file(tmp_path):
    config = VtaConfig(log_wgt_buff_size=17)
    path = tmp_path / "vta_config.json"
    path.write_text(json.dumps({"TARGET": "sim", **config.to_json()}))
    resolved = resolve_target({"kind": "vta", "config": str(path), "extended": True})
    assert vta_options(resolved) == VtaOptions(config=config, extended=True)
    assert vta_options(Target(str(resolved))) == vta_options(resolved)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 3}, r"no option\(s\) \['size'\]; it has 'config'"),
        ({"extended": "yes"}, "'extended' of target 'vta' is 'yes'; expected a bool"),
        ({"config": 3}, "'config' of target 'vta' is 3; expected the path"),
    ],
)
def test_an_option_that_vta_does_not_have_is_refused(options, message):
    with pytest.raises(BackendError, match=message):
        resolve_target({"kind": "vta", **options})
