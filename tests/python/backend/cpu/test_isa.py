import pytest
from tvm.target import Target

from tvm_quant.backend.cpu.isa import isa_of

X86 = {"kind": "llvm", "mtriple": "x86_64-linux-gnu"}


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ({**X86, "mcpu": "skylake-avx512"}, "avx512"),
        ({**X86, "mcpu": "skylake-avx512", "mattr": ["-avx512bw"]}, "avx2"),
        ({**X86, "mcpu": "haswell"}, "avx2"),
        ({**X86, "mcpu": "haswell", "mattr": ["-fma"]}, "sse2"),
        ({**X86, "mcpu": "nehalem"}, "sse2"),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}, "neon"),
        ({"kind": "llvm", "mtriple": "riscv64-linux-gnu", "mcpu": "generic-rv64"}, "generic"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["mcpu"],
)
def test_the_row_follows_the_features_of_the_target(target, name):
    assert isa_of(Target(target)).name == name
