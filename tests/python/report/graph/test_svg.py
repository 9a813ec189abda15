"""The drawing: well-formed, with every box, wire and quantizer, and safe names."""

import math
from collections import Counter
from xml.etree import ElementTree

import pytest

from placed_networks import BODIES, placed_network
from tvm_quant.artifact import network_of
from tvm_quant.report.graph import Box, Diagram, Wire, diagram_of, draw
from tvm_quant.report.graph.svg import sqnr_colour, sqnr_text
from tvm_quant.transform import Annotate

SVG = "{http://www.w3.org/2000/svg}"


def parsed(diagram):
    return ElementTree.fromstring(draw(diagram).svg)


def classes(root):
    return Counter((e.get("class") or "").split(" ")[0] for e in root.iter() if e.get("class"))


@pytest.mark.parametrize("name", BODIES)
def test_everything_is_drawn_once(name):
    diagram = diagram_of(network_of(Annotate()(placed_network(name))))
    pills = sum(wire.pill is not None for wire in diagram.wires)
    pills += sum(len(box.weights) for box in diagram.boxes)
    assert classes(parsed(diagram)) == {
        "box": len(diagram.boxes),
        "wire": len(diagram.wires),
        "pill": pills,
    }


def test_tooltips_hold_shape_reason_and_noise():
    box = Box(
        title="a<b>&c",
        ops=("softmax",),
        state="float",
        shape="1 x 5",
        reasons=("no integer form",),
        sqnr_db=20.0,
    )
    root = parsed(Diagram(boxes=[box], wires=[]))
    assert [e.text for e in root.iter(f"{SVG}title")] == [
        "a<b>&c\nsoftmax\n1 x 5\nfloat: no integer form\nSQNR 20.0 dB"
    ]
    assert [e.text for e in root.iter(f"{SVG}text")] == ["a<b>&c", "softmax", "20.0 dB"]


def test_tooltips_of_quantizers_hold_their_numbers():
    root = parsed(diagram_of(network_of(Annotate()(placed_network("concat")))))
    (pill,) = (e for e in root.iter(f"{SVG}g") if e.get("data-pill") == "both:1")
    assert pill.get("data-group") == "0"
    assert pill.find(f"{SVG}text").text == "8ANu g0"
    assert pill.find(f"{SVG}title").text == (
        "both:1\nreads: right_relu\nrole: activation\ngrid: 8 bit unsigned, codes 0 .. 255\n"
        "zero: asymmetric\nscales: per tensor\none scale with group 0"
    )


def test_long_names_are_cut_in_the_middle():
    root = parsed(Diagram(boxes=[Box(title="encoder/" * 6 + "conv", ops=("conv2d",))], wires=[]))
    assert next(root.iter(f"{SVG}text")).text == "encoder/encode…r/encoder/conv"


def test_wires_that_carry_floats_are_dashed():
    boxes = [Box(title="a", ops=("conv2d",)), Box(title="b", ops=("exp",)), Box(title="c")]
    wires = [Wire(source=0, target=1), Wire(source=1, target=2, in_float=True)]
    root = parsed(Diagram(boxes=boxes, wires=wires))
    dashes = [e.get("stroke-dasharray") for e in root.iter() if e.get("class") == "wire"]
    assert dashes == [None, "5 3"]


def test_colours_and_words_of_noise():
    assert sqnr_text(math.inf) == "exact"
    assert sqnr_text(-math.inf) == "-inf dB"
    assert sqnr_colour(-math.inf) == sqnr_colour(math.nan) == sqnr_colour(10)
    assert sqnr_colour(math.inf) == sqnr_colour(45)
    assert len({sqnr_colour(db) for db in (10, 20, 30, 45)}) == 4
