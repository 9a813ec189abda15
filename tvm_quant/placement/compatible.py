"""Which grid may follow which on one tensor."""

from __future__ import annotations

from tvm_quant.hardware import Grid


def may_requantize(lower: Grid, upper: Grid) -> bool:
    """Whether `lower` may stand below `upper`: it represents no more than `upper` lets through.

    >>> from tvm_quant.hardware import grids
    >>> eight, four = grids("8SN 4SN")
    >>> may_requantize(four, eight), may_requantize(eight, four)
    (True, False)
    """
    if lower.bits > upper.bits or lower.narrow != upper.narrow:
        return False
    if upper.symmetric and not lower.symmetric:
        return False
    return lower.signed == upper.signed or _narrows_sign(lower.signed, upper.signed)


def _narrows_sign(lower: bool | None, upper: bool | None) -> bool:
    """A free sign may be forced, and signed codes may lose their sign; not the reverse."""
    return upper is None or (upper is True and lower is False)


def makes_redundant(upper: Grid, lower: Grid) -> bool:
    """Whether `lower`, below `upper`, changes no value, nor the codes that its reader gets.

    >>> from tvm_quant.hardware import grids
    >>> signed, unsigned = grids("8SNs 8SNu")
    >>> makes_redundant(signed, signed), makes_redundant(signed, unsigned)
    (True, False)
    """
    if (lower.bits, lower.narrow) != (upper.bits, upper.narrow):
        return False
    if lower.signed is not None and lower.signed != upper.signed:
        return False
    same_mode = lower.symmetric == upper.symmetric or upper.symmetric
    same_scales = lower.per_channel == upper.per_channel or not upper.per_channel
    return same_mode and same_scales
