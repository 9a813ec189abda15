"""Front end for MXNet: the files of a checkpoint, a Gluon block, or a Symbol with its parameters.

    source.py      what the user passed -> JSON text of the graph, parameters, shapes of inputs
    params.py      the binary format of `.params`
    symbol.py      the JSON text -> nodes, of every version of MXNet
    importer.py    nodes -> Relax, by the table in converters/

MXNet itself is needed only for objects of its own; whoever holds one has it installed.
"""

from __future__ import annotations

from tvm import IRModule

from tvm_quant.frontend.base import Frontend, Params, Request, failures_told
from tvm_quant.frontend.mxnet.source import is_mxnet, open_source


def _load(request: Request) -> tuple[IRModule, Params]:
    from tvm_quant.frontend.mxnet.importer import import_network

    with failures_told(
        lambda line: (
            f"The MXNet model cannot be imported: {line}. Check that symbol, "
            "parameters and shapes belong together."
        )
    ):
        return import_network(open_source(request)), {}


FRONTEND = Frontend(
    name="mxnet",
    reads="a NAME-symbol.json (NAME-0000.params beside it), (symbol, params), or a gluon block",
    accepts=is_mxnet,
    load=_load,
)
