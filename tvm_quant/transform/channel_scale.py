"""Scaling the channels of an activation and undoing it in the weights that read it.

    sum_c w[o, c] x[c]  =  sum_c (w[o, c] / r[c]) (r[c] x[c])        r > 0

r is free to choose. A larger r gives channel c more codes of the activation and makes its weights
smaller beside the others of the same output. Both errors can be predicted from the second moment of
each channel, with a uniform rounding error of step**2 / 12:

    activation   sum_o sum_c |w[o, c]|**2 / r[c]**2 * step(r)**2 / 12
    weight       sum_o step_o(r)**2 / 12 * taps * sum_c E[x[c]**2] r[c]**2

each over the energy of the result, so that errors of several readers can be added. A reader that
has no weights (a sum, a mean) only has the first, with weight 1.

`best_factors` tries r = (largest range / range of c) ** alpha for a few alpha and keeps the best.

Source: the factors are those of cross-layer equalization (Nagel et al., arXiv:1906.04721, section
4.1) and of SmoothQuant (Xiao et al., arXiv:2211.10438, eq. 4); here predicted error chooses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tvm_quant.op import ContractionAxes
from tvm_quant.statistics import ChannelSpread, Distribution

Array = npt.NDArray[Any]

ALPHAS = tuple(step / 10 for step in range(1, 11))
#: Factors beyond this make weights vanish beside the others.
MAX_FACTOR = 1024.0
#: Room above the largest value seen of a channel. One channel has few values, and what exceeds its
#: range later is clipped: for a Gaussian tail, ten times the data reaches about 15 % further.
HEADROOM = 1.15
#: Values of a channel of which the largest says too little about those to come.
TOO_FEW_VALUES = 32
#: The predicted error must fall at least to this share for a fold to be worth its multiply.
WORTH = 0.8


@dataclass(frozen=True, kw_only=True)
class ChannelRange:
    """What is known of each channel of an activation.

    Attributes:
        low, high: range, (C,), low <= 0 <= high.
        second_moment: E[x**2], (C,).
        count: values of a channel that were seen.
    """

    low: Array
    high: Array
    second_moment: Array
    count: int

    @property
    def extent(self) -> Array:
        """Largest absolute value, (C,)."""
        return np.maximum(-self.low, self.high)


class Reader(Protocol):
    """Something that computes with the activation."""

    def gains(self, factors: Array, channels: ChannelRange) -> Array:
        """What noise of energy 1 in each scaled channel does to the result, over its energy: (C,).

        Args:
            factors: r, (C,).
            channels: of the activation.
        """

    def error(self, factors: Array, channels: ChannelRange, step: float) -> float:
        """Predicted error over the energy of its result.

        Args:
            factors: r, (C,).
            channels: of the activation.
            step: of the activation's grid, in units of r x.
        """


@dataclass(frozen=True, kw_only=True)
class ElementReader:
    """An operator that passes every element on, with its error."""

    def gains(self, factors: Array, channels: ChannelRange) -> Array:
        """See `Reader`."""
        signal = float(channels.second_moment.sum())
        return np.asarray(1 / factors**2 / signal) if signal > 0 else np.zeros(factors.shape)

    def error(self, factors: Array, channels: ChannelRange, step: float) -> float:
        """See `Reader`."""
        return float(self.gains(factors, channels).sum() * step**2 / 12)


@dataclass(frozen=True, kw_only=True)
class WeightReader:
    """A contraction with a constant.

    Attributes:
        weight: its float weight.
        axes: its axes.
        levels: largest code of the weight's grid.
        per_channel: whether each output channel has its own weight scale.
    """

    weight: Array
    axes: ContractionAxes
    levels: int
    per_channel: bool

    def gains(self, factors: Array, channels: ChannelRange) -> Array:
        """See `Reader`."""
        signal = self._signal(channels)
        if signal <= 0:
            return np.zeros(factors.shape)
        return np.asarray(self._energy.reshape(-1) / factors**2 / signal)

    def error(self, factors: Array, channels: ChannelRange, step: float) -> float:
        """See `Reader`."""
        signal = self._signal(channels)
        if signal <= 0:
            return 0.0
        group, outputs, inputs, taps = self._blocks.shape
        r = factors.reshape(group, 1, inputs)
        moment = channels.second_moment.reshape(group, 1, inputs)
        activation = self.gains(factors, channels).sum() * step**2 / 12
        scaled = (self._largest / r).max(axis=2)
        largest = scaled if self.per_channel else scaled.max()
        noise = np.square(largest / self.levels) / 12
        weight = (noise * taps * (moment * r**2).sum(axis=2)).sum()
        if not self.per_channel:
            weight = weight * outputs
        return float(activation + weight / signal)

    def _signal(self, channels: ChannelRange) -> float:
        """Energy of the result."""
        return float((self._energy.reshape(-1) * channels.second_moment).sum())

    @cached_property
    def _blocks(self) -> Array:
        return _by_input(self.weight, self.axes)[0]

    @cached_property
    def _energy(self) -> Array:
        """What each input adds to all outputs: float64, (group, input of the group)."""
        energy = np.einsum("goit,goit->gi", self._blocks, self._blocks, dtype=np.float64)
        return np.asarray(energy)

    @cached_property
    def _largest(self) -> Array:
        """Largest weight between an output and an input: float64, (group, output, input)."""
        return np.asarray(np.abs(self._blocks).max(axis=3).astype("float64"))


def best_factors(channels: ChannelRange, readers: Sequence[Reader], levels: int) -> Array | None:
    """Factors r for each channel, or None where scaling does not pay.

    Args:
        channels: of the activation.
        readers: everything that reads it.
        levels: codes of the activation's grid.
    """
    extent = channels.extent
    largest = float(extent.max())
    if largest <= 0 or extent.size == 1 or channels.count <= TOO_FEW_VALUES:
        return None
    reach = np.maximum(extent * HEADROOM, largest / MAX_FACTOR)
    ratio = np.where(extent > 0, np.maximum(largest / reach, 1.0), 1.0)
    plain = _error(np.ones_like(ratio), channels, readers, levels)
    tried = [(_error(ratio**alpha, channels, readers, levels), alpha) for alpha in ALPHAS]
    error, alpha = min(tried)
    return ratio**alpha if error < WORTH * plain else None


def scaled_spread(
    spread: ChannelSpread, factors: Array, channels: ChannelRange, readers: Sequence[Reader]
) -> Distribution:
    """How the scaled activation is spread, each channel weighed by what noise in it does."""
    gains = np.sum([reader.gains(factors, channels) for reader in readers], axis=0)
    low, high = (channels.low * factors).min(), (channels.high * factors).max()
    return spread.scaled(factors, gains, float(low), float(high))


def divide_inputs(weight: Array, factors: Array, axes: ContractionAxes) -> Array:
    """The weight with the slice of each input channel divided by its factor."""
    blocks, restore = _by_input(weight, axes)
    per_group = factors.reshape(blocks.shape[0], 1, blocks.shape[2], 1)
    divided: Array = restore(blocks / per_group).astype(weight.dtype)
    return divided


def _error(factors: Array, channels: ChannelRange, readers: Sequence[Reader], levels: int) -> float:
    low, high = (channels.low * factors).min(), (channels.high * factors).max()
    step = (high - low) / (levels - 1)
    return sum(reader.error(factors, channels, step) for reader in readers)


def _by_input(weight: Array, axes: ContractionAxes) -> tuple[Array, Any]:
    """The weight as (group, output of the group, input of the group, tap), and the way back."""
    order = [axes.weight_output, axes.weight_input]
    order += [axis for axis in range(weight.ndim) if axis not in order]
    moved = weight.transpose(order)
    outputs, inputs = moved.shape[:2]
    taps = moved.shape[2:]
    groups = axes.groups
    if axes.transposed:
        blocks = moved.reshape(outputs, groups, inputs // groups, -1).swapaxes(0, 1)
    else:
        blocks = moved.reshape(groups, outputs // groups, inputs, -1)

    def restore(scaled: Array) -> Array:
        if axes.transposed:
            scaled = scaled.swapaxes(0, 1)
        return scaled.reshape(outputs, inputs, *taps).transpose(np.argsort(order))

    return blocks, restore
