"""`COMMANDS`: what `tvm-quant bench` measures, one file per command; each prints a table."""

from __future__ import annotations

from collections.abc import Callable

from tvm_quant.bench.accuracy import accuracy, table
from tvm_quant.bench.agreement import agreement
from tvm_quant.bench.builds import builds
from tvm_quant.bench.control import control
from tvm_quant.bench.exported import exported
from tvm_quant.bench.imported import imported
from tvm_quant.bench.memory import memory
from tvm_quant.bench.mxnet_zoo import mxnet_zoo
from tvm_quant.bench.pareto import pareto
from tvm_quant.bench.peers import peers
from tvm_quant.bench.quantize_time import quantize_time
from tvm_quant.bench.relay import relay
from tvm_quant.bench.speed import speed
from tvm_quant.bench.vta import vta
from tvm_quant.bench.vta_mutants import vta_mutants
from tvm_quant.bench.workers import workers

COMMANDS: dict[str, Callable[..., None]] = {
    "accuracy": accuracy,
    "table": table,
    "agreement": agreement,
    "builds": builds,
    "exported": exported,
    "imported": imported,
    "pareto": pareto,
    "control": control,
    "memory": memory,
    "mxnet": mxnet_zoo,
    "workers": workers,
    "peers": peers,
    "quantize-time": quantize_time,
    "relay": relay,
    "speed": speed,
    "vta": vta,
    "vta-mutants": vta_mutants,
}
"""{command: function}, in the order of the help."""
