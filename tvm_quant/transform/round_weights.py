"""RoundWeights: put each weight on its grid so that the layer's output stays right.

Before    y = R.nn.conv2d(q, simulated_quantize(w, t)) + b
After     y = R.nn.conv2d(q, simulated_quantize(w', t)) + b'    w' = codes * t

Nearest codes err the least in the weights, which is not what counts: where inputs are alike, errors
of opposite sign cancel. Codes are chosen one after the other, each making up for the errors so far
(weight_rounding/error_feedback.py), by the covariance of what the float layer reads on calibration
samples. The mean goes into the bias: b' = b - E[x] (w' - nearest(w)), so that the bias correction
made for the nearest codes stays right.

Weights that several calls read, and layers of a symbolic size, are rounded to nearest.

Needs calibrated quantizers; comes after CorrectBias, which has to see the float weights.

Source: Frantar et al., arXiv:2210.17323.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from threadpoolctl import threadpool_limits
from tvm import IRModule, relax

from tvm_quant.config import QuantizeConfig, WeightRounding
from tvm_quant.dataset.check import is_batched
from tvm_quant.hardware import hardware_row
from tvm_quant.ir import bindings, constant_value, consumers, io_signature
from tvm_quant.ir.signature import main_function
from tvm_quant.op import contraction_axes, is_calibrated, scale_of, spec_of
from tvm_quant.transform.calibration_samples import Batches, chosen_batches
from tvm_quant.transform.channel_vector import Array, scale_per_output
from tvm_quant.transform.correct_bias import add_to_biases
from tvm_quant.transform.measure_shift import weighted_layers
from tvm_quant.transform.profiling import ordered_map
from tvm_quant.transform.quantizers import set_constants, strip_quantizers
from tvm_quant.transform.weight_pairs import limit_pairs
from tvm_quant.transform.weight_rounding import (
    Blocks,
    Moments,
    Patches,
    gather_moments,
    round_to_nearest,
    round_with_feedback,
)

#: Calibration samples to run.
SAMPLES = 64


@tvm.transform.module_pass(opt_level=0, name="RoundWeights")
class RoundWeights:
    """Choose the codes of the weights of every quantized convolution and matmul.

    Args:
        config: `weight_rounding`; its hardware row may limit pairs of codes.
        dataset: calibration batches by input name; without, codes are the nearest.
        executor: runs the network on its workers; None works in threads, as `Profile` does.
        progress: show a bar.
    """

    def __init__(
        self,
        config: QuantizeConfig | None = None,
        dataset: Batches | None = None,
        *,
        executor: Executor | None = None,
        progress: bool = False,
    ):
        self.config = config or QuantizeConfig()
        self.largest_pair = hardware_row(self.config.hardware).largest_pair
        self.dataset = dataset
        self.executor = executor
        self.progress = progress

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        layers = {layer.name: layer for layer in _layers(main_function(mod))}
        nearest = self.config.weight_rounding is WeightRounding.NEAREST
        if nearest or self.dataset is None or not layers:
            return mod
        batches = chosen_batches(self.dataset, SAMPLES, batched=is_batched(io_signature(mod)))
        # Threads work on samples and layers side by side; those of BLAS would wait for them.
        with threadpool_limits(1, user_api="blas"):
            moments = gather_moments(
                strip_quantizers(mod),
                {name: (layer.patches, layer.blocks) for name, layer in layers.items()},
                [batch for batch, _size in batches],
                executor=self.executor,
                progress=self.progress,
            )
            found = [layer for name, layer in layers.items() if moments[name].count]
            rounded = list(ordered_map(lambda layer: self._rounded(layer, moments), found, None))
        weights = {layer.weight: weight for layer, (weight, _) in zip(found, rounded, strict=True)}
        changes = {layer.name: -change for layer, (_, change) in zip(found, rounded, strict=True)}
        return add_to_biases(set_constants(mod, weights), changes)

    def _rounded(self, layer: _Layer, moments: dict[str, Moments]) -> tuple[Array, Array]:
        return layer.rounded(moments.pop(layer.name), self.largest_pair)


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A contraction whose weight it alone reads.

    Attributes:
        name, call: variable and value of the contraction.
        weight: variable of the quantizer of its weight.
        quantizer: the value of that.
        patches, blocks: how to read its inputs and its weight.
    """

    name: str
    call: relax.Call
    weight: str
    quantizer: relax.Call
    patches: Patches
    blocks: Blocks

    def rounded(self, moments: Moments, largest_pair: int | None) -> tuple[Array, Array]:
        """The weight on its grid, float32, and what its mean changes in the output, (O,)."""
        value = constant_value(self.quantizer.args[0])
        assert value is not None, "weighted_layers() found it"
        scale, zero_point = scale_of(self.quantizer)
        spec = spec_of(self.quantizer)
        grid = [self._by_block(a) for a in (scale, spec.qmin - zero_point, spec.qmax - zero_point)]
        weight = self.blocks.of_weight(value.astype("float64"))
        chosen, nearest = np.empty_like(weight), np.empty_like(weight)
        for part in self.blocks.slices():
            step, low, high = (array[part] for array in grid)
            covariance = moments.covariance(part)
            chosen[part] = round_with_feedback(weight[part], covariance, step, low, high)
            nearest[part] = round_to_nearest(weight[part], step, low, high)
        codes = self.blocks.to_weight(chosen)
        if largest_pair is not None:
            codes = limit_pairs(codes, contraction_axes(self.call), largest_pair)
        moved = (self.blocks.of_weight(codes) - nearest) * grid[0]
        changes = (moved * moments.mean[:, :, None]).sum(axis=1)
        return codes.astype("float32") * scale, self.blocks.sum_parts(changes)

    def _by_block(self, array: Array) -> Array:
        """Something that each output channel of the weight has one of: float64, (B, 1, R)."""
        by_output = scale_per_output(self.call, array.astype("float64"), self.blocks.shape)
        vector = np.broadcast_to(by_output.reshape(-1), self.blocks.outputs)
        return self.blocks.of_outputs(vector)


def _layers(func: relax.Function) -> list[_Layer]:
    values: dict[relax.Var, Any] = {binding.var: binding.value for binding in bindings(func)}
    uses = consumers(func)
    names = set(weighted_layers(func))
    found = []
    for var, call in values.items():
        if str(var.name) not in names or len(uses[call.args[1]]) != 1:
            continue
        quantizer, patches = values[call.args[1]], Patches.of(call)
        if patches is None or not is_calibrated(quantizer):
            continue
        shape = tuple(int(size) for size in quantizer.ty.shape)
        found.append(
            _Layer(
                name=str(var.name),
                call=call,
                weight=str(call.args[1].name),
                quantizer=quantizer,
                patches=patches,
                blocks=Blocks(shape, contraction_axes(call)),
            )
        )
    return found
