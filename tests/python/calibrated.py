"""Small networks annotated and calibrated on statistics taken in NumPy: nothing is compiled."""

import numpy as np
from tvm import IRModule

from numpy_network import all_values
from tvm_quant.config import QuantizeConfig
from tvm_quant.ir import bindings
from tvm_quant.op import is_simulated
from tvm_quant.statistics import Statistics, TensorStatistics
from tvm_quant.transform import Annotate, CalibrateActivations, CalibrateWeights
from tvm_quant.transform.profiling import profiled_tensors
from tvm_quant.transform.quantizers import strip_quantizers


def statistics_of(mod: IRModule, *inputs: np.ndarray) -> Statistics:
    """What Profile gathers on one batch: inputs are (samples, ...)."""
    values = all_values(strip_quantizers(mod), *inputs)
    samples = len(inputs[0])
    tensors = {
        tensor.name: TensorStatistics.of(
            np.float32(values[tensor.name]), samples=samples, axis=tensor.axis
        )
        for tensor in profiled_tensors(mod)
    }
    return Statistics(tensors, samples=samples)


def calibrated(
    mod: IRModule, *inputs: np.ndarray, config: QuantizeConfig | None = None
) -> tuple[IRModule, Statistics]:
    """A network with calibrated quantizers, and the statistics."""
    mod = Annotate(config)(mod)
    statistics = statistics_of(mod, *inputs)
    mod = CalibrateWeights(config)(mod)
    return CalibrateActivations(statistics, config)(mod), statistics


def variable(mod: IRModule, name: str):
    """The variable of that name in `main`."""
    return next(b.var for b in bindings(mod["main"]) if b.var.name == name)


def value_of(mod: IRModule, name: str):
    """What the variable of that name is bound to."""
    return next(b.value for b in bindings(mod["main"]) if b.var.name == name)


def names(mod: IRModule) -> list[str]:
    """Variables of `main` in order."""
    return [str(binding.var.name) for binding in bindings(mod["main"])]


def quantizer_values(mod: IRModule) -> dict:
    """{variable: call} of the quantizers in `main`."""
    return {
        str(binding.var.name): binding.value
        for binding in bindings(mod["main"])
        if is_simulated(binding.value)
    }
