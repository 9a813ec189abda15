from placement.text_graph import graph
from tvm_quant.config import MergeRule
from tvm_quant.hardware import Grid
from tvm_quant.placement import Place, solve
from tvm_quant.placement.settle import (
    first_choice,
    holding_codes,
    unified_of,
    without_redundant,
)


def settled(text, rule=MergeRule.REQUANTIZE, **choice):
    """{place: grid} of the setup; `choice` holds grids by operator for its input 0."""
    network = graph(text)
    solution = solve(network, rule)
    chosen = first_choice(solution)
    chosen |= {Place(op, 0): Grid.parse(code) for op, code in choice.items()}
    unified = unified_of(solution, chosen)
    final = without_redundant(network, chosen, unified)
    return {str(place): str(grid) for place, grid in final.items()}


FORK = "x>a:conv a>d:conv a>w:dwconv d>y w>z"


def test_a_branch_that_wants_nothing_more_loses_its_quantizer():
    assert settled(FORK) == {"out(x)": "8SN", "out(a)": "8SN"}


def test_a_branch_with_a_narrower_choice_requantizes():
    assert settled(FORK, d="4SN") == {"out(x)": "8SN", "out(a)": "8SN", "in(d,0)": "4SN"}


CONCAT = "x>a:conv z>b:conv a>c:{} b>c[1] c>d:conv c>w:dwconv d>y w>u"
PRODUCERS = dict.fromkeys(("out(x)", "out(z)", "out(a)", "out(b)"), "8SN")


def test_codes_pass_through_a_concat_of_one_grid_and_scale():
    assert settled(CONCAT.format("concat")) == PRODUCERS


def test_what_joins_two_scales_is_quantized_again():
    assert settled(CONCAT.format("join")) == PRODUCERS | {"in(w,0)": "8SC"}


def test_a_sign_that_the_reader_needs_is_kept():
    text = "x>a:conv a>s:signed a>u:unsigned s>y u>z"
    assert settled(text) == {"out(x)": "8SN", "out(a)": "8SNs", "in(u,0)": "8SNu"}


def test_places_with_one_scale_choose_what_all_accept():
    network = graph("x>a:conv z>b:conv a>t:tied b>t[1] a>w:dwconv t>y w>v")
    solution = solve(network)
    chosen = first_choice(solution)
    assert str(chosen[Place.after("a")]) == str(chosen[Place.after("b")]) == "8SN"


def test_a_group_is_what_chose_one_grid_per_tensor():
    solution = solve(graph("x>a:conv z>b:conv a>c:concat b>c[1] c>d:conv d>y"))
    (group,) = solution.unified
    alike = dict.fromkeys(group, Grid.parse("8SN"))
    assert unified_of(solution, alike) == (group,)
    assert unified_of(solution, dict.fromkeys(group, Grid.parse("8SC"))) == ()
    assert unified_of(solution, alike | {min(group): Grid.parse("4SN")}) == ()


def test_codes_are_held_up_to_the_next_operator_that_computes():
    network = graph("x>a:conv a>p:pool p>r:reshape r>b:conv b>y")
    solution = solve(network)
    chosen = first_choice(solution)
    assert holding_codes(network, chosen, ()) == {"x", "a", "p", "r"}
