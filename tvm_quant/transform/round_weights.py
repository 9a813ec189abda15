"""RoundWeights: put each weight on its grid so that the layer's output stays right.

Before    y = R.nn.conv2d(q, simulated_quantize(w, t)) + b
After     y = R.nn.conv2d(q, simulated_quantize(w', t)) + b'    w' = codes * t

Nearest codes err the least in the weights, which is not what counts: where inputs are alike, errors
of opposite sign cancel. Codes are chosen one after the other, each making up for the errors so far
(weight_rounding/error_feedback.py), by the covariance of what the float layer reads on calibration
samples. The mean goes into the bias: b' = b - E[x] (w' - nearest(w)), so that the bias correction
made for the nearest codes stays right.

Where weights have few bits and no estimator of their scales is named, the steps are chosen here,
too: those with which the output errs the least (weight_rounding/best_shares.py).

Weights that several calls read, and layers of a symbolic size, are rounded to nearest.

Needs calibrated quantizers; comes after CorrectBias, which has to see the float weights.

Source: Frantar et al., arXiv:2210.17323.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from threadpoolctl import threadpool_limits
from tvm import IRModule, relax

from tvm_quant.config import QuantizeConfig, WeightRounding
from tvm_quant.dataset.check import is_batched
from tvm_quant.estimator import AbsMax
from tvm_quant.hardware import hardware_row
from tvm_quant.ir import bindings, constant_value, consumers, io_signature, node_name, op_name
from tvm_quant.ir.signature import main_function
from tvm_quant.op import contraction_axes, is_calibrated, scale_of, spec_of
from tvm_quant.transform.calibrate_weights import chooses_steps, power_of_two_scales
from tvm_quant.transform.calibration_samples import Batches, chosen_batches
from tvm_quant.transform.channel_vector import Array, scale_per_output, to_weight_shape
from tvm_quant.transform.correct_bias import add_to_biases
from tvm_quant.transform.measure_shift import weighted_layers
from tvm_quant.transform.profiling import fingerprint, ordered_map
from tvm_quant.transform.quantizers import set_constants, set_scales, strip_quantizers
from tvm_quant.transform.weight_pairs import limit_pairs
from tvm_quant.transform.weight_rounding import (
    SHARES,
    Blocks,
    Moments,
    Patches,
    best_shares,
    gather_moments,
    output_error,
    round_to_nearest,
    round_with_feedback,
)

#: Calibration samples to run.
SAMPLES = 64
#: {fingerprint of a network: {variable of a contraction: moments of what it reads}}.
KnownMoments = dict[str, dict[str, Moments]]


@tvm.transform.module_pass(opt_level=0, name="RoundWeights")
class RoundWeights:
    """Choose the codes of the weights of every quantized convolution and matmul.

    Args:
        config: `weight_rounding`; its hardware row may limit pairs of codes.
        dataset: calibration batches by input name; without, codes are the nearest.
        executor: runs the network on its workers; None works in threads, as `Profile` does.
        progress: show a bar.
        known: moments by fingerprint of the network that they were taken in; filled. Spares running
            a network again that is quantized with other bits.
    """

    def __init__(
        self,
        config: QuantizeConfig | None = None,
        dataset: Batches | None = None,
        *,
        executor: Executor | None = None,
        progress: bool = False,
        known: KnownMoments | None = None,
    ):
        self.config = config or QuantizeConfig()
        self.largest_pair = hardware_row(self.config.hardware).largest_pair
        self.dataset = dataset
        self.executor = executor
        self.progress = progress
        self.known = known

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        layers = {layer.name: layer for layer in _layers(main_function(mod))}
        nearest = self.config.weight_rounding is WeightRounding.NEAREST
        if nearest or self.dataset is None or not layers:
            return mod
        moments = self._moments(mod, layers)
        found = {name: layer for name, layer in layers.items() if moments[name].count}
        with threadpool_limits(1, user_api="blas"):  # threads work on layers side by side
            results = ordered_map(
                lambda name: self._rounded(layers[name], moments.pop(name)), found, None
            )
            rounded = dict(zip(found, results, strict=True))
        weights = {layers[name].weight: found for name, found in rounded.items()}
        mod = set_constants(mod, {name: found.weight for name, found in weights.items()})
        mod = set_scales(mod, {name: found.scale for name, found in weights.items()})
        return add_to_biases(mod, {name: -found.change for name, found in rounded.items()})

    def _moments(self, mod: IRModule, layers: Mapping[str, _Layer]) -> dict[str, Moments]:
        """What each layer reads; what is not known is measured."""
        assert self.dataset is not None
        key = fingerprint(mod) if self.known is not None else ""
        if self.known is not None and set(self.known.get(key, ())) >= set(layers):
            return dict(self.known[key])
        batches = chosen_batches(self.dataset, SAMPLES, batched=is_batched(io_signature(mod)))
        # Threads work on samples side by side; those of BLAS would wait for them.
        with threadpool_limits(1, user_api="blas"):
            moments = gather_moments(
                strip_quantizers(mod),
                {name: (layer.patches, layer.blocks) for name, layer in layers.items()},
                [batch for batch, _size in batches],
                executor=self.executor,
                progress=self.progress,
            )
        if self.known is not None:
            self.known[key] = dict(moments)
        return moments

    def _rounded(self, layer: _Layer, moments: Moments) -> _Rounded:
        return layer.rounded(moments, self._shares(layer), self.largest_pair)

    def _shares(self, layer: _Layer) -> Sequence[float]:
        """Steps to try, as shares of the calibrated one."""
        chooses = chooses_steps(self.config, spec_of(layer.quantizer), *layer.names)
        return SHARES if chooses and not power_of_two_scales(self.config) else (1.0,)


@dataclass(frozen=True, kw_only=True)
class _Rounded:
    """What became of a layer.

    Attributes:
        weight: on its grid, float32.
        scale: (scale, zero point) of that.
        change: what the mean of the weight's change adds to the output, (O,).
    """

    weight: Array
    scale: tuple[Array, Array]
    change: Array


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A contraction whose weight it alone reads.

    Attributes:
        name, call: variable and value of the contraction.
        names: what patterns may select it by.
        weight: variable of the quantizer of its weight.
        quantizer: the value of that.
        patches, blocks: how to read its inputs and its weight.
    """

    name: str
    call: relax.Call
    names: tuple[str, str]
    weight: str
    quantizer: relax.Call
    patches: Patches
    blocks: Blocks

    def rounded(
        self, moments: Moments, shares: Sequence[float], largest_pair: int | None
    ) -> _Rounded:
        """The layer with the best of its steps times `shares`."""
        scale, zero_point = scale_of(self.quantizer)
        value = self._value()
        weight = self.blocks.of_weight(value.astype("float64"))
        axes = contraction_axes(self.call)
        before = self.blocks.of_outputs(self._by_output(scale))
        nearest = round_to_nearest(weight, before, *self._ends())
        if len(shares) > 1:
            step = self._best_step(weight, moments, self._by_output(scale), shares)
            scale = to_weight_shape(step, scale, axes).astype("float32")
        step = self.blocks.of_outputs(self._by_output(scale))
        codes = self.blocks.to_weight(self._codes(weight, moments, step))
        if largest_pair is not None:
            codes = limit_pairs(codes, axes, largest_pair)
        moved = (self.blocks.of_weight(codes) - nearest) * step + nearest * (step - before)
        changes = (moved * moments.mean[:, :, None]).sum(axis=1)
        return _Rounded(
            weight=codes.astype("float32") * scale,
            scale=(scale, zero_point),
            change=self.blocks.sum_parts(changes),
        )

    def _value(self) -> Array:
        value = constant_value(self.quantizer.args[0])
        assert value is not None, "weighted_layers() found it"
        return value

    def _codes(self, weight: Array, moments: Moments, step: Array) -> Array:
        """Of several trials side by side, where the last axis is as many times as long."""
        trials = weight.shape[2] // self.blocks.rows
        low, high = (np.tile(end, (1, 1, trials)) for end in self._ends())
        codes = np.empty_like(weight)
        for part in self.blocks.slices():
            covariance = moments.covariance(part)
            codes[part] = round_with_feedback(
                weight[part], covariance, step[part], low[part], high[part]
            )
        return codes

    def _best_step(
        self, weight: Array, moments: Moments, step: Array, shares: Sequence[float]
    ) -> Array:
        """Steps of the output channels, (O,), that leave the smallest errors.

        Where a step covers more than the weights of its channel, something needs it: it stays.
        """
        spec = spec_of(self.quantizer)
        largest = self._by_output(AbsMax().weight_scale(self._value(), spec)[0])
        trials = [self.blocks.of_outputs(largest * share) for share in shares]
        errors = self._errors(weight, moments, np.concatenate(trials, axis=2), len(shares))
        best = best_shares(errors, shares, together=spec.axis is None)
        return np.where(step > largest * (1 + 1e-6), step, largest * best)

    def _errors(self, weight: Array, moments: Moments, steps: Array, trials: int) -> Array:
        """Error in each output of each trial: (trials, O)."""
        weight = np.tile(weight, (1, 1, trials))
        difference = self._codes(weight, moments, steps) * steps - weight
        errors = np.concatenate(
            [
                output_error(difference[part], moments.covariance(part))
                for part in self.blocks.slices()
            ]
        )
        by_trial = np.split(errors, trials, axis=1)
        return np.stack([self.blocks.sum_parts(part) for part in by_trial])

    def _ends(self) -> tuple[Array, Array]:
        """Smallest and largest code, by block."""
        spec = spec_of(self.quantizer)
        zero_point = scale_of(self.quantizer)[1]
        low, high = (self._by_output(end - zero_point) for end in (spec.qmin, spec.qmax))
        return self.blocks.of_outputs(low), self.blocks.of_outputs(high)

    def _by_output(self, array: Array) -> Array:
        """What the weights of each output channel have one of: float64, (O,)."""
        by_output = scale_per_output(self.call, array.astype("float64"), self.blocks.shape)
        return np.broadcast_to(by_output.reshape(-1), self.blocks.outputs)


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
                names=(node_name(func, var), op_name(call) or "call"),
                weight=str(call.args[1].name),
                quantizer=quantizer,
                patches=patches,
                blocks=Blocks(shape, contraction_axes(call)),
            )
        )
    return found
