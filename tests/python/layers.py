"""Integers against simulation, layer by layer: each layer of both reads the same integers."""

from dataclasses import dataclass

import numpy as np
from tvm import IRModule, relax

from plain_tvm import run
from tvm_quant.ir import bindings, constant_value
from tvm_quant.ir.rebuild import rebuild
from tvm_quant.op import is_simulated, scale_of
from tvm_quant.transform.realize import Realize


@dataclass(frozen=True)
class Comparison:
    """A calibrated network in float and in integers.

    Attributes:
        integers: results of the realized network.
        given: results of the simulation whose quantized tensors are those of the realized network.
        steps: {quantizer: difference to that simulation in steps of its grid, each element}.
    """

    integers: list[np.ndarray]
    given: list[np.ndarray]
    steps: dict[str, np.ndarray]


def compare(simulated: IRModule, *inputs: np.ndarray) -> Comparison:
    """Realize a calibrated network and run both on `inputs`."""
    quantizers = run_time_quantizers(simulated)
    count = len(quantizers)
    realized = run(Realize()(with_taps(simulated, cut=False)), *inputs)
    results, taps = realized[: len(realized) - count], realized[len(realized) - count :]
    given = run(with_taps(simulated, cut=True), *inputs, *taps)
    steps = {
        name: (one - other) / scale_of(call)[0]
        for (name, call), one, other in zip(
            quantizers.items(), taps, given[len(given) - count :], strict=True
        )
    }
    return Comparison(results, given[: len(given) - count], steps)


def run_time_quantizers(mod: IRModule) -> dict[str, relax.Call]:
    """{variable: call} of the quantizers of tensors that are computed."""
    return {
        str(binding.var.name): binding.value
        for binding in bindings(mod["main"])
        if is_simulated(binding.value) and constant_value(binding.value.args[0]) is None
    }


def with_taps(mod: IRModule, *, cut: bool) -> IRModule:
    """The network that returns its quantized tensors too; if cut, later layers read new inputs."""
    quantizers = run_time_quantizers(mod)
    given = {
        name: relax.Var(f"{name}_given", relax.TensorType(call.ty.shape, call.ty.dtype))
        for name, call in quantizers.items()
    }
    values = {param: param for param in mod["main"].params}
    taps: list[relax.Var] = []

    def visit(_builder: relax.BlockBuilder, old: relax.Var, new: relax.Var) -> relax.Var:
        values[old] = new
        if str(old.name) in quantizers:
            taps.append(new)
            values[old] = given[str(old.name)] if cut else new
        return values[old]

    def result() -> relax.Expr:
        out = values[mod["main"].body.body]
        fields = [out]
        if isinstance(out.ty, relax.TupleType):
            fields = [relax.TupleGetItem(out, index) for index in range(len(out.ty.fields))]
        return relax.Tuple([*fields, *taps])

    return rebuild(mod, visit, result, extra_params=list(given.values()) if cut else [])


def sqnr_db(reference: np.ndarray, result: np.ndarray) -> float:
    """Signal to quantization noise, dB; a signal weaker than 0.1 counts as 0.1."""
    reference, result = np.float64(reference), np.float64(result)
    signal = max(np.square(reference).mean(), 0.01)
    noise = max(np.square(reference - result).mean(), 1e-20)
    return float(10 * np.log10(signal / noise))
