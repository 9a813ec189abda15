import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tvm

from search.conftest import CONFIG, DATA, network
from tvm_quant import Budget, QuantizeConfig, quantize, search_bits
from tvm_quant.artifact import calibration_table
from tvm_quant.errors import ConfigError
from tvm_quant.search import (
    FLOAT,
    Choice,
    Latencies,
    LayerGroup,
    Sensitivity,
    Subject,
    choose,
    measure_latency,
)


@pytest.fixture(scope="module")
def found():
    return search_bits(network(), None, DATA, CONFIG, budget=Budget(weight_bytes=0.6))


def test_a_search_gives_a_config_that_quantizes_within_the_budget(found):
    assert found.share <= 0.6
    assert found.share == sum(row.size_bytes for row in found.rows) / (72 + 160 + 40)
    assert QuantizeConfig.from_dict(found.config.to_dict()) == found.config
    tvm.ir.assert_structural_equal(quantize(network(), None, DATA, found.config), found.module)
    simulated = dataclasses.replace(found.config, simulate=True)
    table = calibration_table(quantize(network(), None, DATA, simulated))
    bits = {row.node: row.grid.split()[0] for row in table if row.kind == "weight"}
    chosen = {node: f"s{row.choice.weight_bits}" for row in found.rows for node in row.group.nodes}
    assert bits == chosen


def test_the_whole_network_is_measured(found):
    assert found.predicted == pytest.approx(sum(row.loss for row in found.rows))
    assert 0.1 < found.measured / found.predicted < 10


def test_workers_and_statistics_change_nothing(found, subject):
    with ThreadPoolExecutor(2) as executor:
        again = search_bits(
            network(),
            None,
            DATA,
            CONFIG,
            budget=Budget(weight_bytes=0.6),
            executor=executor,
            statistics=subject.statistics,
        )
    assert (again.config, again.rows, again.measured) == (found.config, found.rows, found.measured)


def test_more_bytes_lose_less():
    shares = [0.3, 0.5, 0.8, 1.0]
    losses = [choose(CONFIG, TABLE, Budget(weight_bytes=share)).predicted for share in shares]
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == len(losses)


A, B = (LayerGroup(nodes=(name,), layers=(name,), weights=100) for name in "ab")
BITS = [Choice(weight_bits=bits) for bits in (2, 4, 8)]
TABLE = Sensitivity(
    groups=(A, B),
    losses=(
        {FLOAT: 0.0, **dict(zip(BITS, (0.5, 0.1, 0.01), strict=True))},
        {FLOAT: 0.0, **dict(zip(BITS, (0.9, 0.05, 0.02), strict=True))},
    ),
    samples=1,
)


HARMFUL = Sensitivity(
    groups=(A, B),
    losses=({FLOAT: 0.0, BITS[2]: 0.5}, {FLOAT: 0.0, BITS[2]: 0.1}),
    samples=1,
)


def test_float_is_a_choice_where_it_is_allowed():
    budget = Budget(weight_bytes=4.0)
    assert choose(CONFIG, TABLE, budget).config == dataclasses.replace(CONFIG)
    assert choose(CONFIG, TABLE, budget, allow_float=True).config.skip == ("a", "b")


def test_a_budget_that_cannot_be_met_is_an_error():
    with pytest.raises(
        ConfigError,
        match=r"cannot take 20% of the bytes of 8-bit weights: The budget is 320, but .* costs 400",
    ):
        choose(CONFIG, TABLE, Budget(weight_bytes=0.2))
    with pytest.raises(ConfigError, match=r"cannot take 1\.5 bits a weight"):
        choose(CONFIG, TABLE, Budget(weight_bits=1.5))


def test_a_budget_of_latency_buys_float_where_it_helps_most():
    extra = {(A, FLOAT): 3.0, (B, FLOAT): 1.0}
    latencies = Latencies(whole_ms=10.0, extra_ms=extra)
    for share, skip in ((1.05, ()), (1.1, ("b",)), (1.3, ("a",)), (1.4, ("a", "b"))):
        budget = Budget(latency=share)
        found = choose(CONFIG, HARMFUL, budget, allow_float=True, latencies=latencies)
        assert found.config.skip == skip
    with pytest.raises(ConfigError, match=r"cannot take 90% of the latency: The budget is -1, but"):
        choose(CONFIG, HARMFUL, Budget(latency=0.9), latencies=latencies)


def test_latencies_are_those_of_builds():
    subject = Subject(network(), None, DATA, CONFIG)
    sixteen = Choice(weight_bits=4, activation_bits=16)
    found = measure_latency(subject, [FLOAT, Choice(weight_bits=4), sixteen], rounds=2)
    assert found.whole_ms > 0
    codes = (FLOAT, Choice(weight_bits=8, activation_bits=16))
    assert set(found.extra_ms) == {(group, code) for group in subject.groups() for code in codes}
    group = subject.groups()[0]
    assert found.extra(group, Choice(weight_bits=2)) == 0
    assert found.extra(group, sixteen) == found.extra_ms[group, codes[1]]


def test_a_search_without_data_is_an_error():
    with pytest.raises(ValueError, match="no data was given for input 'x'"):
        search_bits(network(), None, None, CONFIG, budget=Budget(weight_bits=4))


def test_few_bits_of_inputs_can_be_chosen():
    found = search_bits(
        network(),
        None,
        DATA,
        CONFIG,
        budget=Budget(weight_bits=8),
        weight_bits=(8,),
        activation_bits=(4, 8),
    )
    assert {row.choice for row in found.rows} == {Choice(weight_bits=8, activation_bits=8)}
    assert np.isfinite(found.measured)
