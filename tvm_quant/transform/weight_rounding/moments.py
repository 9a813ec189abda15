"""Mean and covariance of what each weighted layer reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from tvm import IRModule, relax

from tvm_quant.ir.rebuild import rebuild
from tvm_quant.transform.calibration_samples import energy_floor, inverse_energy
from tvm_quant.transform.profiling import Worker, ordered_map
from tvm_quant.transform.weight_rounding.blocks import Blocks
from tvm_quant.transform.weight_rounding.patches import Patches

Array = npt.NDArray[Any]

#: Part of the squares that a variance, their difference to the square of the mean, may miss.
ROUNDING = 1e-12
#: Patches that are added to the sums at once, at least.
TOGETHER = 256
#: Batches that tell what is silent, at most.
PILOT = 8


class Moments:
    """Weighted moments of the patches of a contraction, by block of it."""

    def __init__(self) -> None:
        self.count = 0
        self._weight = 0.0
        self._sum = np.zeros(())
        self._square = np.zeros(())
        self._waiting: list[tuple[Array, Array]] = []

    def add(self, patches: Array, roots: Array) -> None:
        """Take in patches as blocks, (B, K, P), times the roots of their weights, (P,)."""
        self._waiting.append((patches, roots))
        self.count += len(roots)
        if sum(len(waiting) for _, waiting in self._waiting) >= TOGETHER:
            self._sum_up()

    def _sum_up(self) -> None:
        """Add what waits: the sums are larger than a sample and cost more to move."""
        if not self._waiting:
            return
        joined = (np.concatenate(part, axis=-1) for part in zip(*self._waiting, strict=True))
        scaled, roots = (part.astype("float64") for part in joined)
        self._waiting.clear()
        self._weight += float(np.square(roots).sum())
        self._sum = self._sum + scaled @ roots
        square = scaled @ scaled.swapaxes(1, 2)
        self._square = np.add(self._square, square, out=self._square if self._square.ndim else None)

    def finished(self) -> Moments:
        """These moments, once all patches are taken in."""
        self._sum_up()
        return self

    @property
    def mean(self) -> Array:
        """Of each input: float64, (B, K)."""
        return np.asarray(self._sum / self._weight)

    def covariance(self, part: slice) -> Array:
        """Between the inputs of each of some blocks: float64, (blocks, K, K)."""
        mean, square = self.mean[part], self._square[part] / self._weight
        unsure = ROUNDING * np.einsum("bkk->b", square)[:, None, None] * np.eye(square.shape[1])
        return np.asarray(square - mean[:, :, None] * mean[:, None, :] + unsure)


def gather_moments(
    mod: IRModule,
    layers: Mapping[str, tuple[Patches, Blocks]],
    batches: Sequence[Mapping[str, Array]],
    *,
    executor: Executor | None = None,
    progress: bool = False,
) -> dict[str, Moments]:
    """Run a float network and take the moments of what its layers read.

    Samples count by the inverse energy of what a layer reads of them (see `inverse_energy`), so
    that the error counts beside the signal and none speaks for the others. One with NaN or Inf does
    not count. A few samples run twice: first, for what is silent.

    Args:
        mod: the network.
        layers: {variable of the contraction: how to read it}, in order.
        batches: by input name.
        executor: runs the network; see `ordered_map`.
        progress: show a bar.

    Returns:
        {variable of the contraction: moments}.
    """
    network = _Network(Worker(_with_patches(mod, layers)), len(layers))
    reading = _Reading(network, tuple(layers.values()), _floors(network, batches, executor))
    moments = {name: Moments() for name in layers}
    console = Console(stderr=True)
    with closing(ordered_map(reading, batches, executor)) as results:
        for found in track(
            results,
            "Weight rounding",
            total=len(batches),
            disable=not progress,
            console=console,
            transient=True,
        ):
            for layer, weighed in zip(moments.values(), found, strict=True):
                if weighed is not None:
                    layer.add(*weighed)
    return {name: found.finished() for name, found in moments.items()}


@dataclass(frozen=True)
class _Network:
    """Runs the network that `_with_patches` makes."""

    worker: Worker
    layers: int

    def __call__(self, batch: Mapping[str, Array]) -> tuple[list[Array], list[Array]]:
        """What each layer reads, and its energies."""
        results = self.worker.run(batch)
        return results[: self.layers], results[self.layers :]

    def energies(self, batch: Mapping[str, Array]) -> list[Array]:
        """The energies alone, in memory of their own."""
        return [energy.copy() for energy in self(batch)[1]]


@dataclass(frozen=True)
class _Reading:
    """What one batch adds to the moments of each layer; can be pickled."""

    network: _Network
    layers: tuple[tuple[Patches, Blocks], ...]
    floors: list[float]

    def __call__(self, batch: Mapping[str, Array]) -> list[tuple[Array, Array] | None]:
        """Arguments of `Moments.add`; None where no sample is finite."""
        parts = zip(self.layers, *self.network(batch), self.floors, strict=True)
        return [self._weighed(*part) for part in parts]

    def _weighed(
        self, layer: tuple[Patches, Blocks], taken: Array, energy: Array, floor: float
    ) -> tuple[Array, Array] | None:
        patches, blocks = layer
        used = np.isfinite(energy)
        if not used.any():
            return None
        weights = inverse_energy(energy[used].astype("float64"), floor)
        found = patches.arranged(taken.compress(used, axis=patches.rows))
        samples, channels, taps, positions = found.shape
        together = found.transpose(1, 2, 0, 3).reshape(channels, taps, samples * positions)
        roots = np.sqrt(np.repeat(weights, positions)).astype("float32")
        return blocks.of_patches(together) * roots, roots


def _floors(
    network: _Network, batches: Sequence[Mapping[str, Array]], executor: Executor | None
) -> list[float]:
    """`energy_floor` of each layer, by some batches."""
    some = batches[:: -(-len(batches) // PILOT)]
    energies = ordered_map(network.energies, some, executor)
    return [energy_floor(np.concatenate(column)) for column in zip(*energies, strict=True)]


def _with_patches(mod: IRModule, layers: Mapping[str, tuple[Patches, Blocks]]) -> IRModule:
    """The network that returns what the layers read: elements of each, then energies of each."""
    taken: list[relax.Expr] = []
    energies: list[relax.Expr] = []

    def visit(builder: relax.BlockBuilder, old: relax.Var, new: relax.Var) -> relax.Var:
        if str(old.name) in layers:
            patches, _blocks = layers[str(old.name)]
            values = builder.emit(patches.taken(builder.lookup_binding(new).args[0]))
            rest = [axis for axis in range(int(values.ty.ndim)) if axis != patches.rows]
            taken.append(values)
            energies.append(builder.emit(relax.op.mean(relax.op.square(values), rest)))
        return new

    return rebuild(mod, visit, lambda: relax.Tuple([*taken, *energies]))
