import pytest

from tvm_quant.backend.cpu.isa import ISAS
from tvm_quant.backend.cpu.tile import MAX_ROWS, STAGING_COST, Tile, choose_tile, window_rows

AVX2 = next(isa for isa in ISAS if isa.name == "avx2")
AVX512 = next(isa for isa in ISAS if isa.name == "avx512")


@pytest.mark.parametrize("isa", [AVX2, AVX512], ids=lambda isa: isa.name)
@pytest.mark.parametrize("rows", [1, 7, 12, 56, 111])
@pytest.mark.parametrize("vectors", [1, 3, 8, 125])
def test_a_tile_fits_the_registers_and_divides_the_channels(isa, rows, vectors):
    tile, cost = choose_tile(isa, rows=rows, vectors=vectors, padding=STAGING_COST)
    assert tile.fits(isa)
    assert vectors % tile.vectors == 0 and tile.rows <= min(rows, MAX_ROWS)
    assert cost >= 0.5


@pytest.mark.parametrize("rows", [7, 12, 49, 56])
def test_without_padding_the_rows_divide(rows):
    tile, _ = choose_tile(AVX2, rows=rows, vectors=4, padding=None)
    assert rows % tile.rows == 0


def test_padding_is_chosen_where_no_divisor_is_good():
    assert 13 % choose_tile(AVX2, rows=13, vectors=32, padding=STAGING_COST)[0].rows != 0
    assert 12 % choose_tile(AVX2, rows=12, vectors=32, padding=STAGING_COST)[0].rows == 0


def test_where_multiplications_bound_a_tile_no_row_is_computed_in_vain():
    tile, cost = choose_tile(AVX2, rows=13, vectors=32, padding=STAGING_COST, multiplications=2)
    assert 13 % tile.rows == 0 and cost == 1.0


def test_of_equal_tiles_the_one_that_loads_less_is_chosen():
    tile, _ = choose_tile(AVX2, rows=56, vectors=8, padding=None, multiplications=2)
    assert (tile.rows, tile.vectors) == (4, 2)  # as fast as 4 x 1


def test_a_second_multiplication_takes_registers():
    assert Tile(rows=5, vectors=2).fits(AVX2, 2) and not Tile(rows=6, vectors=2).fits(AVX2, 2)


def test_a_full_tile_reaches_the_peak():
    assert Tile(rows=4, vectors=3).cost() == 0.5


def test_a_tile_leaves_registers_for_weights_and_an_input():
    assert Tile(rows=6, vectors=2).fits(AVX2) and not Tile(rows=7, vectors=2).fits(AVX2)


@pytest.mark.parametrize("rows", range(1, 40))
def test_depthwise_tiles_waste_less_than_a_fifth(rows):
    tile = window_rows(rows)
    assert 1 <= tile <= MAX_ROWS
    assert -(-rows // tile) * tile <= rows * 1.2 + 1e-9
