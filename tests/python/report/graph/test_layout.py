"""Layered layouts: what must hold for every graph, and what small graphs look like."""

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_quant.report.graph import lay_out

BOX = (100.0, 40.0)


@st.composite
def graphs(draw):
    """Sizes, and edges from a node to a later one."""
    sizes = draw(
        st.lists(st.tuples(st.floats(10, 200), st.floats(10, 60)), min_size=1, max_size=14)
    )
    count = len(sizes)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=24)) if pairs else []
    return sizes, edges


@settings(max_examples=60)
@given(graphs())
def test_nodes_do_not_overlap_and_wires_lead_downwards(graph):
    sizes, edges = graph
    layout = lay_out(sizes, edges, gap_x=10, gap_y=20)
    frames = [
        (x - width / 2, y, x + width / 2, y + height)
        for (width, height), x, y in zip(sizes, layout.centres, layout.tops, strict=True)
    ]
    for (a_left, a_top, a_right, a_bottom), (b_left, b_top, b_right, b_bottom) in combinations(
        frames, 2
    ):
        beside = a_right + 9.9 <= b_left or b_right + 9.9 <= a_left
        assert beside or a_bottom + 19.9 <= b_top or b_bottom + 19.9 <= a_top
    for left, top, right, bottom in frames:
        assert left >= -0.1
        assert top >= -0.1
        assert right <= layout.width + 0.1
        assert bottom <= layout.height + 0.1
    for (source, target), lanes in zip(edges, layout.lanes, strict=True):
        stops = [frames[source][3], *(y for _, *ys in lanes for y in ys), frames[target][1]]
        assert all(upper <= lower + 0.1 for upper, lower in pairwise(stops))


@settings(max_examples=30)
@given(graphs())
def test_lanes_pass_between_the_nodes(graph):
    sizes, edges = graph
    layout = lay_out(sizes, edges)
    for x, top, bottom in (lane for lanes in layout.lanes for lane in lanes):
        for (width, _), centre, y in zip(sizes, layout.centres, layout.tops, strict=True):
            assert abs(x - centre) > width / 2 or not top - 0.1 <= y <= bottom + 0.1


def test_a_chain_is_straight():
    layout = lay_out([BOX, (60.0, 20.0), BOX], [(0, 1), (1, 2)], gap_y=30)
    assert layout.centres == (50.0, 50.0, 50.0)
    assert layout.tops == (0.0, 70.0, 120.0)
    assert (layout.width, layout.height) == (100.0, 160.0)


def test_headroom_moves_a_layer_down():
    layout = lay_out([BOX, BOX], [(0, 1)], headroom=[0.0, 15.0], gap_y=30)
    assert layout.tops == (0.0, 85.0)


def test_a_long_edge_gets_a_lane_beside_the_nodes_it_passes():
    layout = lay_out([BOX, BOX, BOX], [(0, 1), (1, 2), (0, 2)], gap_x=10, gap_y=30)
    ((x, top, bottom),) = layout.lanes[2]
    assert (layout.lanes[0], layout.lanes[1]) == ((), ())
    assert (top, bottom) == (70.0, 110.0)
    assert abs(x - layout.centres[1]) >= 50 + 10


def test_branches_do_not_cross():
    """Two branches of two nodes each, listed so that the order of the list crosses them."""
    edges = [(0, 1), (0, 2), (1, 4), (2, 3), (3, 5), (4, 5)]
    layout = lay_out([BOX] * 6, edges)
    x = layout.centres
    assert (x[1] < x[2]) == (x[4] < x[3])
    assert x[1] == x[4]
    assert x[2] == x[3]


def test_a_second_input_stands_just_above_its_reader():
    layout = lay_out([BOX] * 5, [(0, 2), (2, 3), (3, 4), (1, 4)], gap_y=30)
    assert layout.tops[1] == layout.tops[3]


def test_nothing_needs_no_room():
    layout = lay_out([], [])
    assert (layout.centres, layout.width, layout.height) == ((), 0.0, 0.0)
