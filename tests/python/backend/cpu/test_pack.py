import numpy as np
import pytest

from tvm_quant.backend.cpu.pack import pack_dense


@pytest.mark.parametrize("shape", [(8, 4), (10, 3, 3, 5), (3, 2, 1)])
@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("pairs", [False, True])
def test_every_weight_is_where_the_kernels_read_it(shape, lanes, pairs):
    weight = np.random.default_rng(0).integers(-99, 99, shape)
    packed = pack_dense(weight, lanes=lanes, pairs=pairs)
    seen = np.zeros_like(packed, dtype=bool)
    for index in np.ndindex(*shape):
        channel, *taps, i = index
        inner = (i // 2, channel % lanes, i % 2) if pairs else (i, channel % lanes)
        at = (channel // lanes, *taps, *inner)
        assert packed[at] == weight[index]
        seen[at] = True
    assert not packed[~seen].any()
