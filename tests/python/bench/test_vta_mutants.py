"""Broken programs for VTA are refused, or do what the whole ones do."""

import pytest

from tvm_quant.backend.vta.codegen import compile_region
from tvm_quant.backend.vta.codegen.verify import verify
from tvm_quant.bench.vta_mutants import MUTATIONS, SMALL, broken, fate_of, regions


def test_programs_have_many_tiles_and_pass():
    for region in regions():
        program = compile_region(region, SMALL)
        verify(program, region)
        assert len(program.instructions) > 40


@pytest.mark.parametrize("seed", [0, 1])
def test_no_mutant_escapes(seed):
    fates = [(fate_of(mutant), mutant.kind, mutant.change) for mutant in broken(32, seed)]
    assert [fate for fate in fates if fate[0] == "escaped"] == []
    assert {kind for fate, kind, _ in fates if fate == "refused"} == set(MUTATIONS)


def test_mutants_escape_without_the_check_of_meaning(monkeypatch):
    monkeypatch.setattr("tvm_quant.backend.vta.codegen.verify.check_meaning", lambda *_: None)
    fates = [fate_of(mutant) for mutant in broken(80) if mutant.kind == "shift an index"]
    assert "escaped" in fates
