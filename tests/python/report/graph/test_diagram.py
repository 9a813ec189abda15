"""Boxes, wires and quantizers of the graph page."""

import numpy as np
import pytest
from tvm import relax

from placed_networks import BODIES, placed_network, weight
from plain_tvm import build
from small_networks import calibrated_network
from tvm_quant.artifact import calibration_table, network_of, placed_rows
from tvm_quant.ir import with_node_names
from tvm_quant.report import LayerSqnr
from tvm_quant.report.graph import Box, Diagram, Pill, Wire, diagram_of
from tvm_quant.transform import Annotate

R, NN = relax.op, relax.op.nn


def small_diagram():
    mod = calibrated_network()
    network = network_of(mod)
    layers = [LayerSqnr(node="stem.conv", op="relax.nn.conv2d", sqnr_db=31.25)]
    return diagram_of(network, placed_rows(network, calibration_table(mod)), layers)


def titles(diagram):
    return [(box.title, *box.ops) for box in diagram.boxes]


def named(mod, **names):
    mod["main"] = with_node_names(mod["main"], names)
    return diagram_of(network_of(mod))


def test_the_whole_diagram():
    data = Pill(
        name="x_q",
        place="stem.conv:0",
        code="8ANu",
        kind="input",
        facts={
            "reads": "x",
            "role": "input",
            "grid": "8 bit unsigned, codes 0 .. 255",
            "zero": "asymmetric",
            "scales": "per tensor",
            "scale": "0.02",
            "zero point": "128",
            "range": "-2.56 .. 2.54",
        },
        group=None,
        adjacent=0,
    )
    diagram = small_diagram()
    (kernel,) = diagram.boxes[1].weights
    assert (kernel.place, kernel.code, kernel.kind) == ("stem.conv:1", "8SCsn", "weight")
    assert kernel.facts["scale"] == "0.004218 .. 0.01831 (5 channels)"
    assert diagram == Diagram(
        boxes=[
            Box(title="x", state="input", shape="2 x 3 x 4 x 4"),
            Box(
                title="stem.conv",
                ops=("conv2d",),
                shape="2 x 5 x 4 x 4",
                weights=(kernel,),
                sqnr_db=31.25,
            ),
            Box(title="relu", ops=("relu",), shape="2 x 5 x 4 x 4"),
            Box(title="mean", ops=("mean",), shape="2 x 5"),
            Box(
                title="head/softmax",
                ops=("softmax",),
                state="float",
                shape="2 x 5",
                reasons=("no integer form",),
            ),
            Box(title="output 0", state="output"),
        ],
        wires=[
            Wire(source=0, target=1, pill=data, in_float=True),
            Wire(source=1, target=2),
            Wire(source=2, target=3),
            Wire(source=3, target=4),
            Wire(source=4, target=5, in_float=True),
        ],
    )


@pytest.mark.parametrize("name", BODIES)
def test_wires_lead_to_later_boxes(name):
    diagram = diagram_of(network_of(Annotate()(placed_network(name))))
    assert all(wire.source < wire.target for wire in diagram.wires)


def body(bb, x):
    product = bb.emit(NN.conv2d(x, weight(4, 4, 1, 1)), "product")
    biased = bb.emit(R.add(product, weight(1, 4, 1, 1)), "biased")
    return bb.emit(NN.relu(biased), "active")


def test_a_convolution_and_its_bias_share_a_box():
    diagram = named(build(body, x=(1, 4, 2, 2)), product="conv", biased="conv")
    assert titles(diagram)[1:3] == [("conv", "conv2d", "add"), ("active", "relu")]


def test_calls_of_one_node_do_not_share_a_box_across_a_quantizer():
    mod = named(Annotate()(placed_network("silu")), first="swish", gate="swish", silu="swish")
    assert titles(mod)[1:4] == [
        ("swish", "conv2d"),
        ("swish", "sigmoid"),
        ("swish", "multiply"),
    ]


def test_calls_of_one_node_do_not_share_a_box_where_the_first_is_read_twice():
    def twice(bb, x):
        first = bb.emit(NN.relu(x), "first")
        second = bb.emit(R.negative(first), "second")
        return second, first

    diagram = named(build(twice, x=(1, 4)), first="node", second="node")
    assert titles(diagram)[1:3] == [("node", "relu"), ("node", "negative")]


def test_a_node_that_is_partly_in_float_says_why():
    def tail(bb, x):
        product = bb.emit(R.matmul(x, weight(4, 4)), "product")
        return bb.emit(R.add(product, weight(4)), "biased")

    diagram = named(Annotate()(build(tail, x=(1, 4))), product="fc", biased="fc")
    (box,) = diagram.boxes[1:2]
    assert (box.state, box.reasons) == ("mixed", ("no quantized layer reads its result",))
    assert diagram.wires[-1].in_float


def test_a_call_that_reads_one_tensor_twice_has_two_wires():
    def square(bb, x):
        return bb.emit(R.matmul(x, x), "square")

    diagram = diagram_of(network_of(Annotate()(build(square, x=(2, 4, 4)))))
    assert [wire.pill.code for wire in diagram.wires[:2]] == ["8ANu", "8SNsn"]


def test_groups_are_numbered():
    diagram = diagram_of(network_of(Annotate()(placed_network("concat"))))
    groups = [wire.pill.group for wire in diagram.wires if wire.pill]
    assert groups == [None, None, None, 0, 0, 0]


def test_noise_stands_at_the_operator_it_was_measured_at():
    def thrice(bb, x):
        first = bb.emit(R.add(x, x), "first")
        second = bb.emit(R.add(first, x), "second")
        return bb.emit(R.multiply(second, x), "third"), first, second

    mod = build(thrice, x=(1, 4))
    names = dict.fromkeys(("first", "second", "third"), "node")
    mod["main"] = with_node_names(mod["main"], names)
    layers = [LayerSqnr(node="node", op="relax.add", sqnr_db=np.inf)]
    diagram = diagram_of(network_of(mod), layers=layers)
    assert [box.sqnr_db for box in diagram.boxes[1:4]] == [None, np.inf, None]


def test_noise_of_a_convolution_whose_bias_is_another_node_stands_at_the_convolution():
    network = network_of(build(body, x=(1, 4, 2, 2)))
    layers = [LayerSqnr(node="product", op="relax.add", sqnr_db=30.0)]
    boxes = diagram_of(network, layers=layers).boxes
    assert [(box.title, box.sqnr_db) for box in boxes[1:3]] == [("product", 30.0), ("biased", None)]
