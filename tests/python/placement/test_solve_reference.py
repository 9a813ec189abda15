"""Placement against the reference's own answers, whatever the order of branches.

Where ours is better, the difference stands in `BETTER` with its reason.
"""

import itertools
import os
import random
from pathlib import Path

import pytest

from placement.reference import RULES, graph_of, groups_of, load, named, parsed
from tvm_quant.hardware import Grid
from tvm_quant.placement.compatible import makes_redundant, may_requantize
from tvm_quant.placement.merge import merge
from tvm_quant.placement.settle import first_choice, unified_of, without_redundant
from tvm_quant.placement.solve import solve

SHARED = Path(os.environ.get("TVM_QUANT_SHARED", "../shared"))
FILE = SHARED / "spec" / "propagation_cases.json"
if not FILE.is_file():
    pytest.skip(f"needs {FILE} (TVM_QUANT_SHARED)", allow_module_level=True)
REFERENCE = load(FILE)
ORDERS = 24

# Places that the reference keeps. Its last pass forgets a quantizer at every concat: here the
# inputs share one grid and one scale, so the branches below would requantize to what they have.
BETTER = {("seed_inception_avgpool", "requantize"): {"in(d1,0)", "in(d2,0)", "in(d3,0)"}}


def case_id(case):
    return f"{case['name']}-{RULES[case['rule']].value}"


def orders(case):
    """The file's order of operators, and others in which every operator follows its inputs."""
    names = list(case["ops"])
    before = {name: {edge[0] for edge in case["edges"] if edge[1] == name} for name in names}
    yield names
    for seed in range(ORDERS):
        left, order = list(names), []
        draw = random.Random(seed)
        while left:
            order.append(draw.choice([name for name in left if before[name] <= set(order)]))
            left.remove(order[-1])
        yield order


def answer(case, order):
    """Proposal, setup, unified and adjacent groups of a case, as the file spells them."""
    graph = graph_of(case, REFERENCE["tables"][case["table"]], order)
    solution = solve(graph, RULES[case["rule"]])
    places = {named(graph, place): place for place in solution.points}
    chosen = first_choice(solution)
    chosen |= {places[name]: Grid.parse(code) for name, code in case.get("choose", {}).items()}
    unified = unified_of(solution, chosen)
    final = without_redundant(graph, chosen, unified)
    proposal = {
        name: {
            "configs": [str(grid) for grid in solution.points[place].grids],
            "sinks": sorted(solution.points[place].sinks),
        }
        for name, place in places.items()
    }
    return {
        "proposal": proposal,
        "final": {named(graph, place): str(grid) for place, grid in final.items()},
        "unified": groups_of(graph, solution.unified),
        "final_unified": groups_of(graph, unified_of(solution, final)),
        "shared_input_groups": groups_of(graph, solution.adjacent),
    }


def expected(case):
    better = BETTER.get((case["name"], RULES[case["rule"]].value), set())
    return {
        "proposal": {
            name: {"configs": point["configs"], "sinks": sorted(point["sinks"])}
            for name, point in case["proposal"].items()
        },
        "final": {name: code for name, code in case["final"].items() if name not in better},
        **{
            key: sorted(map(sorted, case[key]))
            for key in ("unified", "final_unified", "shared_input_groups")
        },
    }


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=case_id)
def test_every_order_of_branches_gives_the_reference_answer(case):
    for order in orders(case):
        assert answer(case, order) == expected(case), order


@pytest.mark.parametrize("row", REFERENCE["merge"], ids=lambda row: " / ".join(map(str, row)))
def test_merge_table_under_all_permutations(row):
    branches = [parsed(codes) for codes in row["branches"]]
    for name, result in row["result"].items():
        merged = parsed(result["merged"] or ())
        kept = [list_kept is not None for list_kept in result["keep"]]
        for order in itertools.permutations(range(len(branches))):
            found = merge(RULES[name], [branches[index] for index in order])
            assert found.grids == merged, (name, order)
            assert found.kept == tuple(kept[index] for index in order), (name, order)


def pairs(predicate):
    """(row, column, whether the column is in the row's list) of a table of the file."""
    for row, true in REFERENCE[predicate].items():
        for column in REFERENCE[predicate]:
            yield Grid.parse(row), Grid.parse(column), column in true


def test_may_requantize_is_the_reference_predicate():
    for lower, upper, true in pairs("lower_may_requantize_upper"):
        assert may_requantize(lower, upper) == true, (str(lower), str(upper))


def test_redundancy_is_the_reference_predicate_but_for_signs():
    for upper, lower, true in pairs("upper_makes_lower_redundant"):
        other_sign = lower.signed is not None and lower.signed != upper.signed
        assert makes_redundant(upper, lower) == (true and not other_sign), (str(upper), str(lower))
