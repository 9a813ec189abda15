"""The solver on graphs of a few operators; `test_solve_reference` has the reference's."""

import re

import pytest

from placement.text_graph import graph
from tvm_quant.config import MergeRule
from tvm_quant.errors import ConfigError
from tvm_quant.hardware import grids
from tvm_quant.placement import Graph, Op, Port, Trait, solve


def points(text, rule=MergeRule.COMMON, **options):
    """{place: grids and sinks}."""
    solution = solve(graph(text, **options), rule)
    return {
        str(place): f"{' '.join(map(str, point.grids))} for {' '.join(sorted(point.sinks))}"
        for place, point in solution.points.items()
    }


def groups(found):
    return sorted(sorted(map(str, group)) for group in found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x>a:conv a>b:conv b>y", {"out(x)": "8SN 8AN for a", "out(a)": "8SN 8AN for b"}),
        (
            "x>a:conv a>p:pool p>r:reshape r>b:conv b>y",
            {"out(x)": "8SN 8AN for a", "out(a)": "8SN 8AN for b"},
        ),
        ("x>s:softmax s>a:conv a>y", {"out(s)": "8SN 8AN for a"}),
        ("x>g:gather ids>g[1]i g>a:conv a>y", {"out(x)": "8SN 8AN for a"}),
    ],
    ids=["chain", "through what moves", "up to a float operator", "not into indices"],
)
def test_a_quantizer_climbs(text, found):
    assert points(text) == found


@pytest.mark.parametrize(
    ("text", "place", "blocked"),
    [
        ("x>p:pool p>a:conv p>s:softmax a>y s>z", "in(a,0)", {"p": "s", "x": "p"}),
        ("x>p:pool p>a:conv p>y a>z", "in(a,0)", {"p": "y", "x": "p"}),
        ("x>p:pool x>a:conv p>s:softmax a>y s>z", "in(a,0)", {"x": "p"}),
        ("x>a:conv x>c:concat z>c[1] c>s:softmax a>y s>w", "in(a,0)", {"x": "c"}),
    ],
    ids=["float reader", "output", "float reader behind a move", "join that nothing climbed"],
)
def test_a_quantizer_stays_below_a_fork_that_needs_float(text, place, blocked):
    solution = solve(graph(text))
    assert [str(found) for found in solution.points] == [place]
    assert {name: reader for name, reader in solution.blocked.items() if name in blocked} == blocked


FORK = "x>a:conv x>b:conv4 a>y b>z"


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (MergeRule.NEVER, {"in(a,0)": "8SN 8AN for a", "in(b,0)": "4SN for b"}),
        (MergeRule.SAME, {"in(a,0)": "8SN 8AN for a", "in(b,0)": "4SN for b"}),
        (MergeRule.COMMON, {"in(a,0)": "8SN 8AN for a", "in(b,0)": "4SN for b"}),
        (
            MergeRule.REQUANTIZE,
            {"in(a,0)": "8SN 8AN for a", "in(b,0)": "4SN for b", "out(x)": "8SN 8AN for "},
        ),
    ],
)
def test_branches_of_unlike_widths(rule, found):
    if rule is MergeRule.REQUANTIZE:
        del found["in(a,0)"]
        found["out(x)"] = "8SN 8AN for a"
    assert points(FORK, rule) == found


def test_a_fixed_quantizer_stays_and_keeps_the_others_below_the_fork():
    found = points("x>a:conv x>b:conv a>y b>z", fixed=("b",))
    assert found == {"in(a,0)": "8SN 8AN for a", "in(b,0)": "8SN 8AN for b"}


def test_one_scale_per_channel_does_not_climb_through_what_moves_channels():
    text = "x>a:conv a>m:{} m>b:dwconv b>y"
    assert points(text.format("pool"))["out(a)"] == "8SC 8SN for b"
    assert points(text.format("reshape"))["out(a)"] == "8SN for b"


def test_inputs_of_a_concat_share_a_scale_and_those_of_a_join_do_not():
    text = "x>a:conv z>b:conv a>c:{} b>c[1] c>d:conv d>y"
    solution = solve(graph(text.format("concat")))
    assert groups(solution.unified) == [["out(a)", "out(b)"]]
    assert groups(solution.adjacent) == [["out(a)", "out(b)"]]
    assert solve(graph(text.format("join"))).unified == ()


def test_a_tied_operand_stays_tied_through_joins():
    """What the operator asks of its two inputs holds for all that is joined into one of them."""
    text = "x>a:conv z>b:conv w>c:conv a>j:join b>j[1] j>t:tied c>t[1] t>y"
    assert groups(solve(graph(text)).unified) == [["out(a)", "out(b)", "out(c)"]]


def test_a_tied_operator_takes_one_scale_per_tensor():
    assert points("x>a:conv a>t:tied z>t[1] t>y")["out(a)"] == "8SN for t"


def test_a_tied_operator_without_such_a_grid_is_refused():
    message = "Input 0 of 't' shares its scale with the other inputs, but accepts only grids with"
    with pytest.raises(ConfigError, match=re.escape(message)):
        solve(graph("x>t:untieable z>t[1] t>y"))


def test_a_cheap_operator_between_float_ones_stays_in_float():
    solution = solve(graph("x>s:softmax s>m:scale m>e:softmax e>y"))
    assert (dict(solution.points), solution.floats) == ({}, {"m"})


def test_a_cheap_operator_whose_quantizer_serves_others_keeps_it():
    solution = solve(graph("x>s:softmax s>m:scale s>a:conv m>y a>z"))
    assert [str(place) for place in solution.points] == ["out(s)"]
    assert solution.floats == frozenset()


def lookup(*table):
    return Graph(
        [
            Op(name="ids", trait=Trait.FLOAT),
            Op(
                name="emb",
                trait=Trait.LOOKUP,
                ports=(Port(source="ids", integer=True), Port(source=None, grids=grids(*table))),
            ),
            Op(
                name="fc",
                trait=Trait.QUANTIZABLE,
                ports=(Port(source="emb", grids=grids("8SN 8AN")),),
            ),
        ]
    )


def test_the_table_of_a_lookup_is_quantized_instead_of_what_is_read():
    solution = solve(lookup("8SCs 8SNs 16SN"))
    found = {str(place): (list(map(str, p.grids)), p.sinks) for place, p in solution.points.items()}
    assert found == {"in(emb,1)": (["8SNs"], frozenset({"emb", "fc"}))}


def test_a_table_without_a_common_grid_is_requantized():
    solution = solve(lookup("16SN"))
    found = {str(place): list(map(str, point.grids)) for place, point in solution.points.items()}
    assert found == {"in(emb,1)": ["16SN"], "out(emb)": ["8SN", "8AN"]}
