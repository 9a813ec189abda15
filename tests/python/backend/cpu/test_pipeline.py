"""The whole pipeline: what reaches the machine code."""

import pytest
from tvm.target import Target

import backend_networks as networks
from tvm_quant.backend import compile

X86 = {"kind": "llvm", "mtriple": "x86_64-linux-gnu"}
ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}


def assembly(mod, target) -> str:
    def sources(module):
        yield module.inspect_source("asm") if module.kind == "llvm" else ""
        for imported in module.imports:
            yield from sources(imported)

    return "".join(sources(compile(mod, Target(target)).mod))


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ({**X86, "mcpu": "znver4"}, ("vpdpbusd", "%zmm")),
        # LLVM prefers 256 bits for these, but must not split our vectors.
        ({**X86, "mcpu": "cascadelake"}, ("vpdpbusd", "%zmm")),
        ({**X86, "mcpu": "sapphirerapids"}, ("vpdpbusd", "%zmm")),
        ({**X86, "mcpu": "alderlake"}, ("{vex}", "vpdpbusd", "%ymm")),
        ({**X86, "mcpu": "haswell"}, ("vpmaddwd", "%ymm")),
        ({**X86, "mcpu": "skylake-avx512"}, ("vpmaddwd", "%zmm")),
        ({**X86, "mcpu": "nehalem"}, ("pmaddwd", "%xmm")),
        ({**ARM, "mcpu": "neoverse-v1"}, ("usdot", ".4s")),
        ({**ARM, "mcpu": "cortex-a76"}, ("sdot", ".4s")),
        ({**ARM, "mcpu": "cortex-a72"}, ("mla", ".4s")),
    ],
    ids=lambda value: value.get("mcpu") if isinstance(value, dict) else value[0],
)
def test_integer_kernels_use_the_vectors_of_the_target(target, instruction):
    mod = networks.integer_conv((1, 16, 8, 8), (16, 16, 3, 3), padding=1)
    lines = assembly(mod, target).splitlines()
    assert any(all(part in line for part in instruction) for line in lines)


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ({**X86, "mcpu": "znver4"}, "vpdpbusd"),
        ({**ARM, "mcpu": "neoverse-v1"}, "\tsdot"),
        ({**ARM, "mcpu": "cortex-a76"}, "\tsdot"),
    ],
    ids=lambda value: value.get("mcpu") if isinstance(value, dict) else None,
)
def test_signed_data_is_multiplied_by_fours(target, instruction):
    mod = networks.integer_conv((1, 16, 8, 8), (16, 16, 3, 3), padding=1, dtype="int8")
    assert instruction in assembly(mod, target)


@pytest.mark.parametrize(("cpu", "vector"), [("znver4", "%zmm"), ("alderlake", "%ymm")])
def test_depthwise_kernels_multiply_rows_at_once(cpu, vector):
    mod = networks.integer_conv((1, 32, 8, 8), (32, 1, 3, 3), padding=1, groups=32)
    lines = assembly(mod, {**X86, "mcpu": cpu}).splitlines()
    assert any("vpdpbusd" in line and vector in line for line in lines)


@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512"])
def test_float_kernels_use_fused_multiply_add(cpu):
    mod = networks.float_conv((1, 16, 8, 8), (16, 16, 3, 3), padding=1)
    assert "vfmadd" in assembly(mod, {**X86, "mcpu": cpu})


@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512"])
@pytest.mark.parametrize(("reach", "saturating"), [(127, False), (64, True)])
def test_products_are_added_in_16_bits_where_no_sum_can_saturate(cpu, reach, saturating):
    mod = networks.integer_conv((1, 16, 8, 8), (16, 16, 1, 1), reach=reach)
    assert ("pmaddubsw" in assembly(mod, {**X86, "mcpu": cpu})) == saturating


def test_one_target_after_the_other_gets_its_own_instruction():
    """Both have quads of bytes on vectors of one length."""
    mod = networks.integer_conv((1, 16, 8, 8), (16, 16, 1, 1), reach=64)
    for cpu, instruction in [("haswell", "pmaddubsw"), ("alderlake", "vpdpbusd")] * 2:
        assert instruction in assembly(mod, {**X86, "mcpu": cpu})
