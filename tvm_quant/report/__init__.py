"""What a quantized network is worth: comparisons, tables, pictures."""

from tvm_quant.report.adjacency import adjacency_groups
from tvm_quant.report.evaluate import Evaluation, LayerSqnr, evaluate, layer_sqnr
from tvm_quant.report.graph import diagram_of, graph_page, write_graph
from tvm_quant.report.inspect import float_table, quantizer_table, select, to_json
from tvm_quant.report.layers import layer_variables
from tvm_quant.report.metrics import METRICS, Metric, metric
from tvm_quant.report.plot import Span, plot_histogram, plot_layers, plot_timeline
from tvm_quant.report.sqnr import SqnrMeter, sqnr_db
from tvm_quant.report.text import quantizer_text
from tvm_quant.report.timeline import spans_of
from tvm_quant.report.trace import PassTrace

__all__ = [
    "METRICS",
    "Evaluation",
    "LayerSqnr",
    "Metric",
    "PassTrace",
    "Span",
    "SqnrMeter",
    "adjacency_groups",
    "diagram_of",
    "evaluate",
    "float_table",
    "graph_page",
    "layer_sqnr",
    "layer_variables",
    "metric",
    "plot_histogram",
    "plot_layers",
    "plot_timeline",
    "quantizer_table",
    "quantizer_text",
    "select",
    "spans_of",
    "sqnr_db",
    "to_json",
    "write_graph",
]
