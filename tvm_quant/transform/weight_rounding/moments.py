"""Mean and covariance of what each weighted layer reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from tvm import IRModule

from tvm_quant.ir import tapped
from tvm_quant.transform.calibration_samples import energy_floor, inverse_energy
from tvm_quant.transform.profiling import Worker, ordered_map
from tvm_quant.transform.weight_rounding.blocks import Blocks
from tvm_quant.transform.weight_rounding.patches import Patches

Array = npt.NDArray[Any]
#: Patches as blocks, (B, K, P), and the energy of each sample, (S,), where P is a multiple of S;
#: None where no sample is finite.
Read: TypeAlias = tuple[Array, Array] | None

#: Part of the squares that a variance, their difference to the square of the mean, may miss.
ROUNDING = 1e-12
#: Patches that are added to the sums at once, at least.
TOGETHER = 256


class Moments:
    """Weighted moments of the patches of a contraction, by block of it.

    Samples count by the inverse energy of what the layer reads of them (see `inverse_energy`), so
    that the error counts beside the signal and none speaks for the others. What is silent is told
    by the first `TOGETHER` patches.

    Products are summed in float32 about a centre, a few hundred at a time, and then in float64.
    """

    def __init__(self) -> None:
        self.count = 0
        self._weight = 0.0
        self._floor = 0.0
        self._centre = np.zeros(())
        self._sum = np.zeros(())
        self._square = np.zeros(())
        self._waiting: list[tuple[Array, Array]] = []

    def add(self, patches: Array, energy: Array) -> None:
        """Take in patches as blocks, float32, (B, K, P), and the energies of the samples, (S,)."""
        self._waiting.append((patches, energy))
        self.count += patches.shape[2]
        if sum(waiting.shape[2] for waiting, _ in self._waiting) >= TOGETHER:
            self._sum_up()

    def _sum_up(self) -> None:
        """Add what waits: the sums are larger than a sample and cost more to move."""
        if not self._waiting:
            return
        patches, energy = (np.concatenate(part, -1) for part in zip(*self._waiting, strict=True))
        self._waiting.clear()
        if not self._square.ndim:
            self._floor = energy_floor(energy)
            self._centre = patches.mean(axis=2, dtype=np.float64).astype(np.float32)
            self._square = np.zeros((*patches.shape[:2], patches.shape[1]))
        weights = inverse_energy(energy, self._floor)
        roots = np.sqrt(np.repeat(weights, patches.shape[2] // len(energy))).astype(np.float32)
        scaled = (patches - self._centre[:, :, None]) * roots
        self._weight += float(np.square(roots, dtype=np.float64).sum())
        self._sum = self._sum + scaled @ roots
        self._square += scaled @ scaled.swapaxes(1, 2)

    def finished(self) -> Moments:
        """These moments, once all patches are taken in."""
        self._sum_up()
        return self

    def scaled(self, factors: Array) -> Moments:
        """The moments of inputs that are multiplied by factors, (B, K)."""
        moments = Moments()
        moments.count, moments._weight = self.count, self._weight
        moments._centre, moments._sum = self._centre * factors, self._sum * factors
        moments._square = self._square * factors[:, :, None] * factors[:, None, :]
        return moments

    @property
    def mean(self) -> Array:
        """Of each input: float64, (B, K)."""
        return np.asarray(self._centre + self._sum / self._weight)

    def covariance(self, part: slice) -> Array:
        """Between the inputs of each of some blocks: float64, (blocks, K, K)."""
        mean, square = self._sum[part] / self._weight, self._square[part] / self._weight
        unsure = ROUNDING * np.einsum("bkk->b", square)[:, None, None] * np.eye(square.shape[1])
        return np.asarray(square - mean[:, :, None] * mean[:, None, :] + unsure)


@dataclass(frozen=True, kw_only=True)
class LayerReading:
    """How a layer reads its operand.

    Attributes:
        operand: name of that variable in the float network.
        patches, blocks: which of its elements, and how they are divided.
    """

    operand: str
    patches: Patches
    blocks: Blocks

    def __call__(self, data: Array) -> Read:
        """What is read of one batch of the operand."""
        taken = self.patches.taken(data)
        rest = tuple(axis for axis in range(taken.ndim) if axis != self.patches.rows)
        with np.errstate(over="ignore", invalid="ignore"):
            energy = np.square(taken).mean(axis=rest, dtype=np.float64)
        used = np.isfinite(energy)
        if not used.any():
            return None
        if not used.all():
            taken = taken.compress(used, axis=self.patches.rows)
        found = self.patches.arranged(taken)
        samples, channels, taps, positions = found.shape
        together = found.transpose(1, 2, 0, 3).reshape(channels, taps, samples * positions)
        return self.blocks.of_patches(together), energy[used]


def add_reads(moments: Mapping[str, Moments], reads: Sequence[Read]) -> None:
    """Add what each layer read of one batch to its moments."""
    for layer, read in zip(moments.values(), reads, strict=True):
        if read is not None:
            layer.add(*read)


def gather_moments(
    mod: IRModule,
    layers: Mapping[str, LayerReading],
    batches: Sequence[Mapping[str, Array]],
    *,
    executor: Executor | None = None,
    progress: bool = False,
) -> dict[str, Moments]:
    """Run a float network and take the moments of what its layers read.

    A sample with NaN or Inf does not count.

    Args:
        mod: the network.
        layers: {variable of the contraction: how it reads}.
        batches: by input name.
        executor: runs the network; see `ordered_map`.
        progress: show a bar.

    Returns:
        {variable of the contraction: moments}.
    """
    operands = list(dict.fromkeys(layer.operand for layer in layers.values()))
    reading = Reading(operands=tuple(operands), layers=tuple(layers.values()))
    run = _Run(Worker(tapped(mod, operands)), reading)
    moments = {name: Moments() for name in layers}
    console = Console(stderr=True)
    with closing(ordered_map(run, batches, executor)) as results:
        for reads in track(
            results,
            "Weight rounding",
            total=len(batches),
            disable=not progress,
            console=console,
            transient=True,
        ):
            add_reads(moments, reads)
    return {name: found.finished() for name, found in moments.items()}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What layers read of one batch; can be pickled.

    Attributes:
        operands: names of the tensors that are given, in order.
        layers: how each layer reads one of them.
    """

    operands: tuple[str, ...]
    layers: tuple[LayerReading, ...]

    def __call__(self, values: Sequence[Array]) -> list[Read]:
        """What each layer reads."""
        by_name = dict(zip(self.operands, values, strict=True))
        return [layer(by_name[layer.operand]) for layer in self.layers]


@dataclass(frozen=True)
class _Run:
    """Runs the network on one batch; can be pickled."""

    worker: Worker
    reading: Reading

    def __call__(self, batch: Mapping[str, Array]) -> list[Read]:
        return self.reading(self.worker.run(batch))
