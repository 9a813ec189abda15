"""What a group of layers can be given: bits for weights and activations, or float."""

from __future__ import annotations

from dataclasses import dataclass

FLOAT_BITS = 32


@dataclass(frozen=True, kw_only=True, order=True)
class Choice:
    """Bits of the layers of a group.

    Attributes:
        weight_bits: of the weights; None leaves the layers in float.
        activation_bits: of what the layers read; None keeps what the config says.

    >>> str(Choice(weight_bits=4)), str(Choice(weight_bits=8, activation_bits=16)), str(FLOAT)
    ('W4', 'W8A16', 'float')
    """

    weight_bits: int | None
    activation_bits: int | None = None

    @property
    def stored_bits(self) -> int:
        """That a weight takes in a file."""
        return FLOAT_BITS if self.weight_bits is None else self.weight_bits

    def __str__(self) -> str:
        if self.weight_bits is None:
            return "float"
        activations = "" if self.activation_bits is None else f"A{self.activation_bits}"
        return f"W{self.weight_bits}{activations}"


FLOAT = Choice(weight_bits=None)
