"""A network as a page to look at: where quantizers stand, what they hold, what each layer loses."""

from tvm_quant.report.graph.diagram import Box, Diagram, Pill, Wire, diagram_of
from tvm_quant.report.graph.layout import Layout, lay_out
from tvm_quant.report.graph.page import graph_page, write_graph
from tvm_quant.report.graph.svg import Drawing, draw

__all__ = [
    "Box",
    "Diagram",
    "Drawing",
    "Layout",
    "Pill",
    "Wire",
    "diagram_of",
    "draw",
    "graph_page",
    "lay_out",
    "write_graph",
]
