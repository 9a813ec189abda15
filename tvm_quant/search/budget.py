"""What an assignment of bits may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_quant.errors import ConfigError
from tvm_quant.search.choice import Choice
from tvm_quant.search.layer_groups import LayerGroup

INT8_BITS = 8


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A limit; exactly one field is given.

    Scales, zero points, biases and layers that stay in float in any case do not count.

    Attributes:
        weight_bytes: of all weights in a file, as a share of what they take with 8 bits.
        weight_bits: mean over all weights.
        latency: of a batch, as a share of what the network takes as the config quantizes it. Bits
            of weights make no difference here: choose from bits of activations, or float.

    >>> Budget(weight_bytes=0.5).limit_bits([LayerGroup(nodes=("a",), layers=("lv",), weights=10)])
    40.0
    """

    weight_bytes: float | None = None
    weight_bits: float | None = None
    latency: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            raise ConfigError(
                "A budget has one limit, weight_bytes, weight_bits or latency; got "
                f"{given or 'none'}."
            )
        ((name, value),) = given.items()
        if not value > 0:
            raise ConfigError(f"{name} is {value!r}; expected more than 0.")

    def limit_bits(self, groups: Sequence[LayerGroup]) -> float:
        """Bits that the weights of all groups may take together."""
        mean = self.weight_bits
        if self.weight_bytes is not None:
            mean = self.weight_bytes * INT8_BITS
        return (mean or 0.0) * sum(group.weights for group in groups)

    def __str__(self) -> str:
        if self.latency is not None:
            return f"{self.latency:.0%} of the latency"
        if self.weight_bits is not None:
            return f"{self.weight_bits:g} bits a weight"
        return f"{self.weight_bytes:.0%} of the bytes of 8-bit weights"


def bits_of(group: LayerGroup, choice: Choice) -> int:
    """Bits that the weights of a group take in a file."""
    return group.weights * choice.stored_bits
