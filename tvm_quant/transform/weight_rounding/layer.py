"""Layers whose weights are rounded, and how one of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.estimator import AbsMax
from tvm_quant.ir import bindings, constant_value, consumers, node_name, op_name
from tvm_quant.op import contraction_axes, is_calibrated, is_simulated, scale_of, spec_of
from tvm_quant.transform.channel_vector import scale_per_output, to_weight_shape
from tvm_quant.transform.measure_shift import weighted_layers
from tvm_quant.transform.weight_pairs import limit_pairs
from tvm_quant.transform.weight_rounding.best_shares import best_shares
from tvm_quant.transform.weight_rounding.blocks import Blocks
from tvm_quant.transform.weight_rounding.error_feedback import (
    Feedback,
    output_error,
    round_to_nearest,
)
from tvm_quant.transform.weight_rounding.moments import LayerReading, Moments
from tvm_quant.transform.weight_rounding.patches import Patches

Array = npt.NDArray[Any]

#: Patches of which the covariance of inputs is trusted, for each input: of fewer, chance makes
#: inputs look alike that are not, and what errors gain on these patches is lost on others.
PATCHES_PER_INPUT = 2


@dataclass(frozen=True, kw_only=True)
class Rounded:
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
class WeightLayer:
    """A contraction whose weight it alone reads.

    Beside the weight and its codes, little stands in memory: blocks of inputs are worked on one
    after the other, some output channels at a time.

    Attributes:
        name, call: variable and value of the contraction.
        names: what patterns may select it by.
        weight: variable of the quantizer of its weight.
        quantizer: the value of that.
        reading: how to read its inputs.
    """

    name: str
    call: relax.Call
    names: tuple[str, str]
    weight: str
    quantizer: relax.Call
    reading: LayerReading

    @property
    def blocks(self) -> Blocks:
        """How its weight is divided."""
        return self.reading.blocks

    def rounded(
        self, moments: Moments, shares: Sequence[float], largest_pair: int | None
    ) -> Rounded:
        """The layer with the best of its steps times `shares`."""
        scale, zero_point = scale_of(self.quantizer)
        weight = self.blocks.of_weight(self._value())
        before = self._by_output(scale)
        axes = contraction_axes(self.call)
        if len(shares) > 1:
            step = self._best_step(weight, moments, before, shares)
            scale = to_weight_shape(step, scale, axes).astype("float32")
        step = self._by_output(scale)
        codes = self.blocks.to_weight(self._codes(weight, moments, step))
        if largest_pair is not None:
            codes = limit_pairs(codes, axes, largest_pair)
        return Rounded(
            weight=codes.astype("float32") * scale,
            scale=(scale, zero_point),
            change=self._change(weight, self.blocks.of_weight(codes), moments.mean, before, step),
        )

    def _value(self) -> Array:
        value = constant_value(self.quantizer.args[0])
        assert value is not None, "weighted_layers() found it"
        return value

    def _codes(self, weight: Array, moments: Moments, step: Array) -> Array:
        """Codes of the blocks of a weight: int16, (B, K, R).

        The nearest where there are too few patches to tell how inputs go together.
        """
        ends = self._ends()
        tells = moments.count >= PATCHES_PER_INPUT * weight.shape[1]
        steps = self.blocks.of_outputs(step)
        codes = np.empty(weight.shape, np.int16)
        for part, rows in self.blocks.slices():
            choose = Feedback(moments.covariance(part)).codes if tells else round_to_nearest
            for some in rows:
                vectors = [vector[part][:, :, some] for vector in (steps, *ends)]
                values = weight[part][:, :, some].astype("float64")
                codes[part][:, :, some] = choose(values, *vectors)
        return codes

    def _change(
        self, weight: Array, codes: Array, mean: Array, before: Array, step: Array
    ) -> Array:
        """What the weights that `codes` mean add to the output, less what the nearest did: (O,)."""
        old, new = self.blocks.of_outputs(before), self.blocks.of_outputs(step)
        ends = self._ends()
        sums = np.empty((len(weight), weight.shape[2]))
        for part, rows in self.blocks.slices():
            for some in rows:
                here = [vector[part][:, :, some] for vector in (old, new, *ends)]
                values = weight[part][:, :, some].astype("float64")
                nearest = round_to_nearest(values, here[0], *here[2:])
                moved = (codes[part][:, :, some] - nearest) * here[1]
                moved += nearest * (here[1] - here[0])
                sums[part, some] = (moved * mean[part][:, :, None]).sum(axis=1)
        return self.blocks.sum_parts(sums)

    def _best_step(
        self, weight: Array, moments: Moments, step: Array, shares: Sequence[float]
    ) -> Array:
        """Steps of the output channels, (O,), that leave the smallest errors.

        Where a step covers more than the weights of its channel, something needs it: it stays.
        """
        spec = spec_of(self.quantizer)
        largest = self._by_output(AbsMax().weight_scale(self._value(), spec)[0])
        errors = self._errors(weight, moments, [largest * share for share in shares])
        best = best_shares(errors, shares, together=spec.axis is None)
        return np.where(step > largest * (1 + 1e-6), step, largest * best)

    def _errors(self, weight: Array, moments: Moments, trials: Sequence[Array]) -> Array:
        """Error in each output with each trial of steps, (O,) each: (trials, O)."""
        ends = self._ends()
        steps = [self.blocks.of_outputs(step) for step in trials]
        errors = np.empty((len(trials), len(weight), weight.shape[2]))
        for part, rows in self.blocks.slices():
            covariance = moments.covariance(part)
            feedback = Feedback(covariance)
            for some in rows:
                low, high = (end[part][:, :, some] for end in ends)
                values = weight[part][:, :, some].astype("float64")
                for trial, step in zip(errors, steps, strict=True):
                    here = step[part][:, :, some]
                    difference = feedback.codes(values, here, low, high) * here - values
                    trial[part, some] = output_error(difference, covariance)
        return np.stack([self.blocks.sum_parts(trial) for trial in errors])

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


def weight_layers(func: relax.Function) -> dict[str, WeightLayer]:
    """The layers of a function whose weights can be rounded, by their variables, in order.

    Weights that several calls read and layers of a symbolic size are not among them.
    """
    values: dict[relax.Var, Any] = {binding.var: binding.value for binding in bindings(func)}
    uses = consumers(func)
    names = set(weighted_layers(func))
    found = {}
    for var, call in values.items():
        if str(var.name) not in names or len(uses[call.args[1]]) != 1:
            continue
        quantizer, patches = values[call.args[1]], Patches.of(call)
        if patches is None or not is_calibrated(quantizer):
            continue
        shape = tuple(int(size) for size in quantizer.ty.shape)
        operand = _behind_quantizer(call.args[0], values)
        blocks = Blocks(shape, contraction_axes(call))
        found[str(var.name)] = WeightLayer(
            name=str(var.name),
            call=call,
            names=(node_name(func, var), op_name(call) or "call"),
            weight=str(call.args[1].name),
            quantizer=quantizer,
            reading=LayerReading(operand=str(operand.name), patches=patches, blocks=blocks),
        )
    return found


def _behind_quantizer(operand: relax.Var, values: dict[relax.Var, Any]) -> relax.Var:
    """What an operand is in the float network."""
    value = values.get(operand)
    return value.args[0] if is_simulated(value) else operand
