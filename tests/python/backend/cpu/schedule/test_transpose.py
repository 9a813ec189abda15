import pytest
from tvm import s_tir, te, tirx

from tvm_quant.backend.cpu.isa import ISAS
from tvm_quant.backend.cpu.schedule.transpose import schedule_transpose

AVX2 = next(isa for isa in ISAS if isa.name == "avx2")


def scheduled(shape, result):
    """(whether it is a transpose, the loops after scheduling) of `result(data, *index)`."""
    data = te.placeholder(shape, name="data")
    turned = result(data)
    sch = s_tir.Schedule(te.create_prim_func([data, turned]))
    block = sch.get_sblock(turned.op.name)
    found = schedule_transpose(sch, block, AVX2)
    return found, [sch.get(loop) for loop in sch.get_loops(block)]


def test_neighbouring_axes_are_one_and_blocks_are_unrolled():
    found, loops = scheduled(
        (1, 6, 4, 16), lambda data: te.compute((1, 16, 6, 4), lambda n, c, h, w: data[n, h, w, c])
    )
    assert found
    assert [int(loop.extent) for loop in loops][-2:] == [8, 8]
    assert [loop.kind for loop in loops][-2:] == [tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED]


@pytest.mark.parametrize(
    "result",
    [
        lambda data: te.compute((6, 4), lambda i, j: data[i, j] + 1.0),
        lambda data: te.compute((4, 6, 4), lambda i, j, k: data[j, k]),
        lambda data: te.compute((6, 4), lambda i, j: data[5 - i, j]),
    ],
    ids=["element-wise", "broadcast", "reversed"],
)
def test_other_reads_are_no_transposes(result):
    assert not scheduled((6, 4), result)[0]


def test_few_channels_are_written_one_by_one_from_vectors():
    found, loops = scheduled(
        (1, 3, 4, 16), lambda data: te.compute((1, 4, 16, 3), lambda n, h, w, c: data[n, c, h, w])
    )
    assert found
    assert int(loops[-1].extent) == 8 and loops[-1].kind == tirx.ForKind.VECTORIZED
