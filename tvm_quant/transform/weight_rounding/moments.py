"""Mean and covariance of what each weighted layer reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from tvm import IRModule, relax

from tvm_quant.backend import Runner
from tvm_quant.ir.rebuild import rebuild
from tvm_quant.transform.calibration_samples import inverse_energy
from tvm_quant.transform.weight_rounding.blocks import Blocks
from tvm_quant.transform.weight_rounding.patches import Patches

Array = npt.NDArray[Any]

#: Part of the squares that a variance, their difference to the square of the mean, may miss.
ROUNDING = 1e-12


class Moments:
    """Weighted moments of the patches of a contraction.

    Args:
        blocks: of the contraction.
    """

    def __init__(self, blocks: Blocks):
        self.blocks = blocks
        self.count = 0
        self._weight = 0.0
        self._sum: Array | float = 0.0
        self._square: Array | float = 0.0

    def add(self, patches: Array, weights: Array) -> None:
        """Take in patches, (samples, input channels, taps, positions), of weights (samples,)."""
        samples, channels, taps, positions = patches.shape
        together = patches.transpose(1, 2, 0, 3).reshape(channels, taps, samples * positions)
        roots = np.sqrt(np.repeat(weights, positions))
        scaled = self.blocks.of_patches(together) * roots
        self.count += len(roots)
        self._weight += float(weights.sum()) * positions
        self._sum += scaled @ roots
        self._square += scaled @ scaled.swapaxes(1, 2)

    @property
    def mean(self) -> Array:
        """Of each input: float64, (B, K)."""
        return np.asarray(self._sum / self._weight)

    def covariance(self, part: slice) -> Array:
        """Between the inputs of each of some blocks: float64, (blocks, K, K)."""
        assert isinstance(self._square, np.ndarray), "there are samples"
        mean, square = self.mean[part], self._square[part] / self._weight
        unsure = ROUNDING * np.einsum("bkk->b", square)[:, None, None] * np.eye(square.shape[1])
        return np.asarray(square - mean[:, :, None] * mean[:, None, :] + unsure)


def gather_moments(
    mod: IRModule,
    layers: Mapping[str, tuple[Patches, Blocks]],
    batches: Sequence[Mapping[str, Array]],
    *,
    progress: bool = False,
) -> dict[str, Moments]:
    """Run a float network and take the moments of what its layers read.

    Samples count by the inverse energy of what a layer reads of them (see `inverse_energy`), so
    that the error counts beside the signal and none speaks for the others. One with NaN or Inf does
    not count. The network runs twice: first for the energies.

    Args:
        mod: the network.
        layers: {variable of the contraction: how to read it}, in order.
        batches: by input name.
        progress: show a bar.

    Returns:
        {variable of the contraction: moments}.
    """
    runner = Runner(_with_patches(mod, layers))
    energies = [runner.run(batch)[len(layers) :] for batch in batches]
    weights = [_weights(column) for column in zip(*energies, strict=True)]
    moments = {name: Moments(blocks) for name, (_patches, blocks) in layers.items()}
    console = Console(stderr=True)
    bar = track(batches, "Weight rounding", disable=not progress, console=console, transient=True)
    for index, batch in enumerate(bar):
        taken = runner.run(batch)[: len(layers)]
        for layer, (name, (patches, _blocks)) in enumerate(layers.items()):
            weight = weights[layer][index]
            used = weight > 0
            samples = taken[layer].compress(used, axis=patches.rows)
            moments[name].add(patches.arranged(samples), weight[used])
    return moments


def _weights(energies: Sequence[Array]) -> list[Array]:
    """Weight of each sample of each batch; 0 where it does not count."""
    joined = np.concatenate(energies).astype("float64")
    finite = np.isfinite(joined)
    weights = np.zeros(len(joined))
    if finite.any():
        weights[finite] = inverse_energy(joined[finite])
    return np.split(weights, np.cumsum([len(part) for part in energies])[:-1])


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
