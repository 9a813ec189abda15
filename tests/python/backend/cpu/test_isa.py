import pytest
from tvm.target import Target

from backend_networks import ISA_TARGETS
from tvm_quant.backend.cpu.isa import ISAS, isa_of
from tvm_quant.hardware import HARDWARE

X86 = {"kind": "llvm", "mtriple": "x86_64-linux-gnu"}
ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ({**X86, "mcpu": "znver4"}, "avx512vnni"),
        ({**X86, "mcpu": "sapphirerapids"}, "avx512vnni"),
        ({**X86, "mcpu": "cascadelake", "mattr": ["-avx512vnni"]}, "avx512"),
        ({**X86, "mcpu": "skylake-avx512"}, "avx512"),
        ({**X86, "mcpu": "skylake-avx512", "mattr": ["-avx512bw"]}, "avx2"),
        ({**X86, "mcpu": "alderlake"}, "avxvnni"),
        ({**X86, "mcpu": "haswell"}, "avx2"),
        ({**X86, "mcpu": "haswell", "mattr": ["-fma"]}, "sse2"),
        ({**X86, "mcpu": "nehalem"}, "sse2"),
        ({**ARM, "mcpu": "neoverse-v1"}, "neon_i8mm"),
        ({**ARM, "mcpu": "cortex-a76"}, "neon_dotprod"),
        ({**ARM, "mcpu": "cortex-a72"}, "neon"),
        ({"kind": "llvm", "mtriple": "riscv64-linux-gnu", "mcpu": "generic-rv64"}, "generic"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["mcpu"],
)
def test_the_row_follows_the_features_of_the_target(target, name):
    assert isa_of(Target(target)).name == name


@pytest.mark.parametrize(("name", "target", "_features"), ISA_TARGETS)
def test_the_targets_of_the_tests_stand_for_their_rows(name, target, _features):
    assert isa_of(Target(target)).name == name


def row(name):
    return next(isa for isa in ISAS if isa.name == name)


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("avx512vnni", "uint8", (4, "uint8", 0)),
        ("avx512vnni", "int8", (4, "uint8", 128)),
        ("avx512vnni", "int16", (2, "int16", 0)),
        ("avx2", "uint8", (2, "int16", 0)),
        ("neon_dotprod", "int8", (4, "int8", 0)),
        ("neon_dotprod", "uint8", (4, "int8", -128)),
        ("neon_i8mm", "int8", (4, "int8", 0)),
        ("neon_i8mm", "uint8", (4, "uint8", 0)),
    ],
)
def test_the_instruction_follows_the_type_of_the_data(name, dtype, expected):
    """(products, type of its data, what is added to each value)."""
    dot = row(name).dot(dtype)
    assert (dot.size, dot.data, dot.offset(dtype)) == expected


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_quads_are_used_where_no_pair_of_weights_can_saturate(name):
    """255 * 128 fits 16 bits, 255 * 129 does not."""
    assert [row(name).dot("uint8", pair=pair).size for pair in (0, 128, 129, 256)] == [4, 4, 2, 2]
    assert row(name).tap_dot("uint8") is None


def test_a_cpu_knows_the_hardware_row_to_quantize_for():
    assert {isa.hardware for isa in ISAS} <= set(HARDWARE)
    for isa in ISAS:
        limit = HARDWARE[isa.hardware].largest_pair
        best = isa.dot("uint8", pair=0)
        assert best is None or limit is None or best is isa.dot("uint8", pair=limit)


@pytest.mark.parametrize(("name", "dtype"), [("avx512vnni", "float32"), ("neon", "uint8")])
def test_without_an_exact_instruction_there_is_none(name, dtype):
    assert row(name).dot(dtype) is None


def test_the_data_of_a_sum_has_32_bits():
    bits = {"int16": 16, "uint8": 8, "int8": 8}
    assert all(dot.size * bits[dot.data] == 32 for isa in ISAS for dot in isa.dots)
