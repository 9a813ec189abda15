import numpy as np
import pytest

from tvm_quant.backend.cpu.pack import pack_dense


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
