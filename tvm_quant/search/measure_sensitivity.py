"""What each group of layers costs in accuracy, for each choice of bits.

A group is measured alone: its layers are quantized, all others compute in float. Weights and
activations are measured apart, and their losses add up, as do those of several groups as long as
they are small: rounding errors of different layers have little to do with each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track

from tvm_quant.dataset import CheckedDataset
from tvm_quant.dataset.batching import Batch
from tvm_quant.errors import ConfigError
from tvm_quant.report import Metric
from tvm_quant.report.evaluate import valid_rows
from tvm_quant.report.metrics import require_labels
from tvm_quant.search.choice import FLOAT, Choice
from tvm_quant.search.configure import with_activation_bits, with_weight_bits
from tvm_quant.search.layer_groups import LayerGroup
from tvm_quant.search.noise import energy, mean_ratio, noise_energies
from tvm_quant.search.probe import Pieces, Probe
from tvm_quant.search.slices import Slice, Slicer
from tvm_quant.search.subject import Subject
from tvm_quant.transform.profiling import ordered_map

Array = npt.NDArray[Any]
#: {layer: which of its slices runs instead}.
Variant = Mapping[str, Hashable]
Key = TypeVar("Key", bound=Hashable)
#: A group, and ("W", bits of weights) or ("A", bits of inputs).
Measurement = tuple[LayerGroup, tuple[str, int]]

#: Tasks that the samples are cut into, at most.
TASKS = 16


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Losses of every group alone.

    Attributes:
        groups: in execution order.
        losses: for each group, the loss of each choice. Noise energy over signal energy at the
            outputs, >= 0, or what a metric loses. That of float is 0.
        samples: that were run.
    """

    groups: tuple[LayerGroup, ...]
    losses: tuple[Mapping[Choice, float], ...]
    samples: int


def measure_sensitivity(
    subject: Subject,
    *,
    weight_bits: Sequence[int],
    activation_bits: Sequence[int] = (),
    samples: int = 32,
    metric: Metric | None = None,
) -> Sensitivity:
    """Measure every group of a network with every choice of bits.

    The network is calibrated once for each number of bits, and compiled once for all.

    Args:
        subject: the network; its executor runs batches of samples, with the same result.
        weight_bits: to choose from, 2 to 8.
        activation_bits: to choose from, 2 to 16; empty keeps those of the config.
        samples: to run, at most; the first ones, or evenly spaced ones of a folder.
        metric: what counts; None takes the noise at the outputs, which tells more from few samples.

    Raises:
        ConfigError: nothing is quantized, so that there is nothing to choose.
        DatasetError: the metric needs labels and there are none.
    """
    groups = subject.groups()
    if not groups:
        raise ConfigError("There is nothing to search: every layer of the network stays in float.")
    few = subject.few(samples)
    if metric is not None:
        require_labels(metric, few)
    with_weights = {bits: _rounded_weights(subject, groups, bits) for bits in weight_bits}
    with_inputs = {bits: _rounded_inputs(subject, groups, bits) for bits in activation_bits}
    pieces: Pieces = {}
    for kind, by_bits in (("W", with_weights), ("A", with_inputs)):
        for bits, slices in by_bits.items():
            pieces |= {(layer, (kind, bits)): one for layer, one in slices.items()}
    keys = [("W", bits) for bits in with_weights] + [("A", bits) for bits in with_inputs]
    variants = [(group, key) for group in groups for key in keys]
    found = _measure(subject, few, Probe(subject.module, pieces), variants, metric)
    return Sensitivity(
        groups=tuple(groups),
        losses=tuple(_choices(group, found, weight_bits, activation_bits) for group in groups),
        samples=few.samples,
    )


def measure_harm(subject: Subject, *, weights: bool, samples: int) -> dict[LayerGroup, float]:
    """Noise over signal at the outputs when a group alone is quantized as the config says.

    Args:
        subject: the network.
        weights: whether weights are quantized as well as inputs.
        samples: to run, at most.
    """
    groups = subject.groups()
    calibrated = subject.calibrated(subject.config, weights=weights)
    slicer = Slicer(subject.module, calibrated, activations=True, weights=weights)
    pieces: Pieces = {
        (layer, "Q"): slicer.slice(layer) for group in groups for layer in group.layers
    }
    variants = [(group, "Q") for group in groups]
    found = _measure(subject, subject.few(samples), Probe(subject.module, pieces), variants, None)
    return {group: found[group, "Q"] for group in groups}


def _rounded_weights(subject: Subject, groups: Sequence[LayerGroup], bits: int) -> dict[str, Slice]:
    """Every layer with weights of so many bits."""
    calibrated = subject.calibrated(with_weight_bits(subject.config, bits), weights=True)
    slicer = Slicer(subject.module, calibrated, activations=False, weights=True)
    return {layer: slicer.slice(layer) for group in groups for layer in group.layers}


def _rounded_inputs(subject: Subject, groups: Sequence[LayerGroup], bits: int) -> dict[str, Slice]:
    """Every layer with inputs of so many bits."""
    calibrated = subject.calibrated(with_activation_bits(subject.config, bits), weights=False)
    slicer = Slicer(subject.module, calibrated, activations=True, weights=False)
    return {layer: slicer.slice(layer) for group in groups for layer in group.layers}


def _choices(
    group: LayerGroup,
    found: Mapping[Measurement, float],
    weight_bits: Sequence[int],
    activation_bits: Sequence[int],
) -> dict[Choice, float]:
    losses = {FLOAT: 0.0}
    for bits in weight_bits:
        loss = found[group, ("W", bits)]
        if not activation_bits:
            losses[Choice(weight_bits=bits)] = loss
        for inputs in activation_bits:
            choice = Choice(weight_bits=bits, activation_bits=inputs)
            losses[choice] = loss + found[group, ("A", inputs)]
    return losses


# Running ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """One batch.

    Attributes:
        signal: energy of each output, (outputs,).
        noise: energy of the difference of each output, (variants, outputs).
        outputs: those of the float run, then those of each variant; empty if not wanted.
        labels: of the samples.
    """

    signal: Array
    noise: Array
    outputs: list[list[Array]]
    labels: Any


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Runs all variants on some batches; can be pickled."""

    probe: Probe
    variants: Sequence[Variant]
    keep: bool

    def __call__(self, batches: Sequence[Batch]) -> list[_Measured]:
        return [self._measure(batch) for batch in batches]

    def _measure(self, batch: Batch) -> _Measured:
        known = self.probe.float_run(batch.inputs)
        exact = self._outputs(batch, known, known)
        noise, kept = [], [exact] if self.keep else []
        for variant in self.variants:
            close = self._outputs(batch, self.probe.variant_run(known, variant), known)
            noise.append(noise_energies(exact, close))
            kept += [close] if self.keep else []
        return _Measured(
            signal=np.array([energy(one) for one in exact]),
            noise=np.array(noise),
            outputs=kept,
            labels=batch.labels,
        )

    def _outputs(self, batch: Batch, values: Any, known: Any) -> list[Array]:
        return [valid_rows(output, batch) for output in self.probe.outputs(values, known)]


def _measure(
    subject: Subject,
    dataset: CheckedDataset,
    probe: Probe,
    variants: Sequence[tuple[LayerGroup, Key]],
    metric: Metric | None,
) -> dict[tuple[LayerGroup, Key], float]:
    """The loss of each variant."""
    task = _Task(
        probe=probe,
        variants=[dict.fromkeys(group.layers, key) for group, key in variants],
        keep=metric is not None,
    )
    batches = list(dataset.with_labels())
    size = -(-len(batches) // TASKS)
    work = [batches[start : start + size] for start in range(0, len(batches), size)]
    with closing(ordered_map(task, work, subject.executor)) as results:
        measured = [
            one
            for part in track(
                results,
                "Sensitivity",
                total=len(work),
                console=Console(stderr=True),
                transient=True,
                disable=not subject.progress,
            )
            for one in part
        ]
    losses = _noise_to_signal(measured) if metric is None else _lost(measured, metric)
    return dict(zip(variants, losses, strict=True))


def _noise_to_signal(measured: Sequence[_Measured]) -> list[float]:
    signal = np.sum([one.signal for one in measured], axis=0)
    noise = np.sum([one.noise for one in measured], axis=0)
    return [float(ratio) for ratio in mean_ratio(noise, signal)]


def _lost(measured: Sequence[_Measured], metric: Metric) -> list[float]:
    """Of each variant, what it loses of the metric."""
    runs = [
        [np.concatenate(parts) for parts in zip(*outputs, strict=True)]
        for outputs in zip(*(one.outputs for one in measured), strict=True)
    ]
    labels = [one.labels for one in measured if one.labels is not None]
    joined = np.concatenate(labels) if labels else None
    scores = [metric.score(runs[0], run, joined) for run in runs]
    return [scores[0] - score for score in scores[1:]]
