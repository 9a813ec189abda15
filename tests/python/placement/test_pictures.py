"""Two pictures of the discussion that asked for quantizers per input port, as tests.

Source: openvinotoolkit/nncf pull request 349 (MobileNetV2 and an Inception block on a VPU).
"""

from collections import Counter

import numpy as np
import pytest
from tvm import relax

import tvm_quant
from placement.placed import placed
from plain_tvm import build
from tvm_quant.backend import Runner
from tvm_quant.bench.zoo import ZOO
from tvm_quant.config import MergeRule, QuantizeConfig
from tvm_quant.hardware import hardware_row
from tvm_quant.op import NO_GROUP, Kind
from tvm_quant.placement import choose, propose
from tvm_quant.report import sqnr_db
from tvm_quant.transform import Prepare

OPS = relax.op

VPU = """\
name: vpu_2021
source: openvinotoolkit/nncf pull request 349, vpu.json
operators:
  contraction: {data: 8AN 4SN, weight: 8SCsn 4SCsn}
  nn.conv2d:depthwise: {data: 8SC, weight: 8SCsn}
  mean: {data: 8SC}
  sum: {data: 8AN 4SN}
  product: {data: 8AN 4SN}
unified: [concat, add]
sums_on_accumulators: false
"""


@pytest.fixture
def vpu(tmp_path):
    path = tmp_path / "vpu_2021.yaml"
    path.write_text(VPU)
    return str(path)


def weight(*shape, seed=0):
    values = np.random.default_rng(seed).normal(size=shape) / np.sqrt(np.prod(shape[1:]))
    return relax.const(values.astype("float32"))


def setup(func, config):
    return choose(propose(func, hardware_row(config.hardware), config), config)


# MobileNetV2 -------------------------------------------------------------------------------------


def test_mobilenet_v2_has_53_weight_and_64_activation_quantizers():
    """An add takes one quantizer with the next convolution, has one for itself and one behind it.

    Targets whose kernels add to an accumulator need none for the operand that a convolution feeds:
    one less for each of the ten adds.
    """
    mod, params = tvm_quant.load(ZOO["mobilenet_v2"]())
    func = Prepare(params)(mod)["main"]
    for hardware, activations in (("npu", 64), ("x86_vnni", 54)):
        found = setup(func, QuantizeConfig(hardware=hardware)).quantizers.values()
        kinds = Counter("weight" if q.kind is Kind.WEIGHT else "activation" for q in found)
        assert kinds == {"weight": 53, "activation": activations}


def inverted_residual(bb, x):
    c0 = bb.emit(OPS.nn.conv2d(x, weight(8, 4, 1, 1)), "c0")
    c1 = bb.emit(OPS.nn.conv2d(c0, weight(16, 8, 1, 1)), "c1")
    dw = bb.emit(OPS.nn.conv2d(c1, weight(16, 1, 3, 3), padding=1, groups=16), "dw")
    c2 = bb.emit(OPS.nn.conv2d(dw, weight(8, 16, 1, 1)), "c2")
    both = bb.emit(OPS.add(c0, c2), "sum")
    return bb.emit(OPS.nn.conv2d(both, weight(4, 8, 1, 1)), "c3")


def activations(found):
    """{place: grid} of the setup's activations."""
    return {str(p): str(q.spec) for p, q in found.quantizers.items() if q.kind is not Kind.WEIGHT}


def test_the_inputs_of_an_add_are_ports_of_their_own(vpu):
    func = build(inverted_residual, x=(1, 4, 8, 8))["main"]
    apart = QuantizeConfig(hardware=vpu, merge_branches=MergeRule.NEVER)
    points = placed(propose(func, hardware_row(vpu), apart))["points"]
    assert {place for place in points if not place.endswith(",1)")} == {
        "out(x)",
        "in(c1,0)",
        "in(sum,0)",
        "out(c1)",
        "out(dw)",
        "out(c2)",
        "out(sum)",
    }
    found = setup(func, QuantizeConfig(hardware=vpu))
    assert activations(found) == {
        "out(x)": "u8 per tensor",
        "out(c0)": "u8 per tensor",
        "out(c1)": "s8 sym per axis 1",
        "out(dw)": "u8 per tensor",
        "out(c2)": "u8 per tensor",
        "out(sum)": "u8 per tensor",
    }
    tied = {str(place) for place, q in found.quantizers.items() if q.group != NO_GROUP}
    assert tied == {"out(c0)", "out(c2)"}


# The Inception block -----------------------------------------------------------------------------


def inception(bb, x):
    """Four convolutions joined; three convolutions and an average pool read the result."""
    branches = [
        bb.emit(OPS.nn.conv2d(x, weight(4, 4, 1, 1, seed=i)), f"b{i}") for i in (1, 2, 3, 4)
    ]
    joined = bb.emit(OPS.concat(branches, axis=1), "cat")
    pool = bb.emit(OPS.nn.avg_pool2d(joined, (3, 3), (1, 1), padding=(1, 1)), "pool")
    heads = [
        bb.emit(OPS.nn.conv2d(joined, weight(8, 16, 1, 1, seed=i)), f"d{i}") for i in (5, 6, 7)
    ]
    return (*heads, bb.emit(OPS.nn.conv2d(pool, weight(8, 16, 1, 1, seed=8)), "p"))


PRODUCERS = {f"out(b{i})": "u8 per tensor" for i in (1, 2, 3, 4)}
AROUND = {"out(x)": "u8 per tensor", "out(pool)": "u8 per tensor"}


def test_the_average_pool_requantizes_what_the_convolutions_share(vpu):
    func = build(inception, x=(1, 4, 8, 8))["main"]
    found = setup(func, QuantizeConfig(hardware=vpu, merge_branches=MergeRule.REQUANTIZE))
    assert activations(found) == PRODUCERS | AROUND | {"in(pool,0)": "s8 sym per axis 1"}
    assert {str(p) for p, q in found.quantizers.items() if q.group != NO_GROUP} == set(PRODUCERS)


def test_branches_without_a_common_grid_keep_theirs_and_the_concat_stays_in_float(vpu):
    func = build(inception, x=(1, 4, 8, 8))["main"]
    found = setup(func, QuantizeConfig(hardware=vpu))
    assert activations(found) == AROUND | {
        "in(d5,0)": "u8 per tensor",
        "in(d6,0)": "u8 per tensor",
        "in(d7,0)": "u8 per tensor",
        "in(pool,0)": "s8 sym per axis 1",
    }
    assert found.reasons == {"cat": "what reads it accepts no common grid"}


@pytest.mark.parametrize("rule", [MergeRule.COMMON, MergeRule.REQUANTIZE])
@pytest.mark.parametrize("body", [inverted_residual, inception])
def test_both_run_on_integers(body, rule, vpu):
    """Requantization on a branch and one scale per channel compute what the float network does."""
    mod = build(body, x=(1, 4, 8, 8))
    data = np.random.default_rng(0).normal(size=(8, 1, 4, 8, 8)).astype("float32")
    config = QuantizeConfig(hardware=vpu, merge_branches=rule)
    int8 = tvm_quant.quantize(mod, dataset=list(data), config=config)
    exact, close = (outputs(Runner(found), data) for found in (mod, int8))
    assert sqnr_db(exact, close) > 30


def outputs(runner, data):
    """All outputs of all samples, flat."""
    found = [output for x in data for output in runner.run({"x": x})]
    return np.concatenate([np.ravel(output) for output in found])
