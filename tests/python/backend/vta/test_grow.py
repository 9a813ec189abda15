"""Regions of random graphs: none waits for itself, and none that could be one are two."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_quant.backend.vta.grow import grow, in_order


@dataclass(frozen=True)
class Reads:
    """As much of a match as regions ask for."""

    reads: tuple[str, ...]


@st.composite
def graphs(draw):
    """(order, reads, matches): each variable reads up to three before it."""
    order = [f"v{number}" for number in range(draw(st.integers(1, 14)))]
    reads, matches = {}, {}
    for number, var in enumerate(order):
        before = st.sampled_from(order[:number]) if number else st.nothing()
        reads[var] = tuple(dict.fromkeys(draw(st.lists(before, max_size=min(number, 3)))))
        if draw(st.booleans()):
            matches[var] = Reads(reads[var])
    return order, reads, matches


@settings(max_examples=200, deadline=None)
@given(graph=graphs())
def test_every_unit_reads_only_what_was_computed_before_it(graph):
    order, reads, matches = graph
    units = grow(order, reads, matches)
    done = set()
    for members in in_order(order, reads, units):
        outside = {operand for var in members for operand in reads[var]} - set(members)
        assert outside <= done
        assert len(members) == 1 or set(members) <= set(matches)
        done |= set(members)
    assert done == set(order)


def test_a_chain_is_one_unit():
    reads = {"a": (), "b": ("a",), "c": ("b", "a")}
    matches = {var: Reads(operands) for var, operands in reads.items()}
    assert len(set(grow(["a", "b", "c"], reads, matches))) == 1


def test_readers_of_one_tensor_are_one_unit():
    reads = {"x": (), "a": ("x",), "b": ("x",)}
    units = grow(["x", "a", "b"], reads, {"a": Reads(("x",)), "b": Reads(("x",))})
    assert units[1] == units[2] != units[0]


def test_a_detour_over_the_cpu_divides():
    reads = {"a": (), "b": ("a",), "c": ("a", "b")}
    matches = {"a": Reads(()), "c": Reads(("a", "b"))}
    assert len(set(grow(["a", "b", "c"], reads, matches))) == 3
