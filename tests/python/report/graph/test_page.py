"""The graph page: one file, complete in itself."""

import json
import re
from html.parser import HTMLParser

import pytest

from placed_networks import placed_network
from small_networks import calibrated_network
from tvm_quant.artifact import network_of
from tvm_quant.errors import ArtifactError
from tvm_quant.report import LayerSqnr, diagram_of, graph_page, write_graph
from tvm_quant.report.graph import Box, Diagram
from tvm_quant.transform import Annotate

CONCAT = diagram_of(network_of(Annotate()(placed_network("concat"))))


class Outline(HTMLParser):
    """Attributes of a page, and the text of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.attributes, self.scripts, self.inside = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        self.inside = tag == "script"

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts.append(data)


def data_of(page):
    return json.loads(Outline(page).scripts[0])


def test_the_page_asks_for_nothing_from_outside():
    page = graph_page(CONCAT, title="net")
    names = {name for name, _ in Outline(page).attributes}
    assert names.isdisjoint({"src", "href", "srcset", "action"})
    assert re.findall(r"https?://[^\"'\s]+", page) == ["http://www.w3.org/2000/svg"]
    assert "default-src 'none'" in page
    assert not re.search(r"\$\w+|@import|url\(", page.replace("${", ""))


def test_equal_diagrams_give_equal_pages():
    assert graph_page(CONCAT, title="net") == graph_page(CONCAT, title="net")


def test_the_panel_knows_boxes_quantizers_and_groups():
    data = data_of(graph_page(CONCAT, title="net", facts={"hardware": "x86_vnni"}))
    assert data["facts"] == [["hardware", "x86_vnni"]]
    titles = [box["title"] for box in data["boxes"]]
    both = titles.index("both")
    assert data["boxes"][both] == {
        "title": "both",
        "ops": ["concat"],
        "state": "integer",
        "shape": "1 x 12 x 8 x 8",
        "reasons": [],
        "pills": ["both:0", "both:1"],
        "sqnr": None,
        "sqnr_db": None,
    }
    assert {p for p, pill in data["pills"].items() if pill["group"] == 0} == {
        "both:0",
        "both:1",
        "pooled:0",
    }
    assert data["pills"]["both:1"]["box"] == both
    assert {"source": titles.index("right_relu"), "target": both} in data["wires"]
    assert data["scale"] is None


def test_noise_brings_a_scale_of_colours():
    layers = [LayerSqnr(node="stem.conv", op="relax.nn.conv2d", sqnr_db=31.25)]
    data = data_of(graph_page(diagram_of(network_of(calibrated_network()), None, layers), title=""))
    assert (data["boxes"][1]["sqnr"], data["boxes"][1]["sqnr_db"]) == ("31.2 dB", 31.25)
    assert data["scale"]["ends"] == ["10 dB", "45 dB"]


def test_names_cannot_end_the_script():
    name = "</script><img>&"
    page = graph_page(Diagram(boxes=[Box(title=name, ops=("add",))], wires=[]), title=name)
    assert "</script><img>" not in page
    assert data_of(page)["boxes"][0]["title"] == name


def test_a_page_is_written_at_once(tmp_path):
    write_graph(tmp_path / "net.html", CONCAT, title="net")
    assert (tmp_path / "net.html").read_text() == graph_page(CONCAT, title="net")
    assert [path.name for path in tmp_path.iterdir()] == ["net.html"]
    with pytest.raises(ArtifactError, match="there is no folder"):
        write_graph(tmp_path / "none" / "net.html", CONCAT, title="net")
