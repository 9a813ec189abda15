import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_quant.errors import ConfigError
from tvm_quant.hardware import Grid, grids
from tvm_quant.op import QuantSpec

GRIDS = st.builds(
    Grid,
    bits=st.integers(2, 32),
    symmetric=st.booleans(),
    per_channel=st.booleans(),
    signed=st.sampled_from([None, True, False]),
) | st.builds(Grid, bits=st.integers(2, 32), signed=st.just(True), narrow=st.just(True))


@given(GRIDS)
def test_a_code_says_everything(grid):
    assert Grid.parse(str(grid)) == grid


@pytest.mark.parametrize("code", ["", "8", "8XN", "8SNx", "8SNns", "SN", "8SN "])
def test_text_that_is_no_code_is_refused(code):
    with pytest.raises(ConfigError, match=re.escape(f"'{code}' is no grid; expected bits, S or A")):
        Grid.parse(code)


def test_an_unsigned_narrow_grid_is_refused():
    with pytest.raises(ConfigError, match="a narrow range only exists for signed grids"):
        Grid.parse("8SNun")


def test_the_spec_of_a_grid():
    fine, free = grids("8SCsn 8SN")
    assert fine.spec(signed=False, axis=1, groups=2) == QuantSpec(narrow=True, axis=1, groups=2)
    assert free.spec(signed=False, axis=1) == QuantSpec(signed=False)


def test_a_narrow_range_only_matters_where_the_sign_turns_out_to_be():
    (grid,) = grids("8SNn")
    assert grid.spec(signed=True) == QuantSpec(narrow=True)
    assert grid.spec(signed=False) == QuantSpec(signed=False)
