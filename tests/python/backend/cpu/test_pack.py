import numpy as np
import pytest

from tvm_quant.backend.cpu.pack import pack_dense, pack_taps


@pytest.mark.parametrize("shape", [(8, 4), (10, 3, 3, 5), (3, 2, 1)])
@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_every_weight_is_where_the_kernels_read_it(shape, lanes, group):
    weight = np.random.default_rng(0).integers(-99, 99, shape)
    packed = pack_dense(weight, lanes=lanes, group=group)
    seen = np.zeros_like(packed, dtype=bool)
    for index in np.ndindex(*shape):
        channel, *taps, i = index
        inner = (i // group, channel % lanes, *[i % group] * (group > 1))
        at = (channel // lanes, *taps, *inner)
        assert packed[at] == weight[index]
        seen[at] = True
    assert not packed[~seen].any()


@pytest.mark.parametrize(("rows", "taps"), [(3, 3), (5, 3), (7, 4), (2, 2)])
@pytest.mark.parametrize("outer", [(), (2,)])
def test_every_tap_is_where_the_kernels_read_it(outer, rows, taps):
    weight = np.random.default_rng(0).integers(-99, 99, (16, *outer, rows, 3))
    packed = pack_taps(weight, lanes=8, taps=taps, group=4)
    seen = np.zeros_like(packed, dtype=bool)
    for index in np.ndindex(*weight.shape):
        channel, *lead, row, column = index
        at = (*lead, row // taps, column, channel // 8, channel % 8, row % taps)
        assert packed[at] == weight[index]
        seen[at] = True
    assert not packed[~seen].any()
