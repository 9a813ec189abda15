"""What the layers read: measured while the network is profiled, used when weights are rounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.transform.weight_rounding.layer import WeightLayer
from tvm_quant.transform.weight_rounding.moments import Moments

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class LayerInputs:
    """Moments of what the layers of a network read.

    Attributes:
        moments: {variable of a contraction: moments}, filled by Profile.
        factors: {variable of a weight's quantizer: factors of the input channels since, (C,)},
            filled by MatchScales.
    """

    moments: dict[str, Moments] = field(default_factory=dict)
    factors: dict[str, Array] = field(default_factory=dict)

    def of(self, layer: WeightLayer) -> Moments:
        """The moments of what a layer reads now."""
        found = self.moments[layer.name]
        factors = self.factors.get(layer.weight)
        if factors is None:
            return found
        taps = np.broadcast_to(factors[:, None, None], (len(factors), layer.blocks.taps, 1))
        return found.scaled(layer.blocks.of_patches(taps)[:, :, 0])
