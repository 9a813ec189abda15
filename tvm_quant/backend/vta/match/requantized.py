"""Sums that are shifted and clipped to int8: convolutions, matrix products, residual sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from tvm_quant.backend.vta.layer import (
    INT8_HIGH,
    INT8_LOW,
    RESIDUAL_SHIFTS,
    SHIFTS,
    Add,
    Convolution,
    Dense,
    Residual,
    Tensor,
)
from tvm_quant.backend.vta.match.match import (
    Array,
    Match,
    Values,
    identity,
    per_channel,
    single,
    tensor_of,
)
from tvm_quant.backend.vta.match.terms import (
    LARGEST_WEIGHT_SHIFT,
    Codes,
    Constant,
    Product,
    Term,
    terms_of,
)
from tvm_quant.ir import constant_value
from tvm_quant.op import RequantizeMode, is_requantize

LARGEST_CODE = 128
INT32_BITS = 31


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A requantized sum.

    Attributes:
        product: what is multiplied.
        residual: what is added, or None.
        bias: int64 (O,).
        shift: to the right, int64 (O,).
        low, high: of the clip.
    """

    product: Product
    residual: Codes | None
    bias: Array
    shift: Array
    low: int
    high: int

    @property
    def bound(self) -> Array:
        """The most that the sum can be, rounding added: float64 (O,)."""
        weights = np.abs(self.product.weight.astype("int64"))
        total = LARGEST_CODE * weights.reshape(len(weights), -1).sum(axis=1) + np.abs(self.bias)
        if self.residual is not None:
            total = total + LARGEST_CODE * 2.0**self.residual.shift
        return np.asarray(total * 2.0 ** (-self.shift).clip(0) + 2.0 ** (self.shift - 1.0))

    @property
    def fits(self) -> bool:
        """Whether VTA has these shifts, and int32 holds the sum."""
        return (
            bool((self.bound < 2.0**INT32_BITS).all())
            and _within(self.shift, SHIFTS)
            and (self.residual is None or _within(self.residual.shift, RESIDUAL_SHIFTS))
        )


def requantized(var: relax.Var, values: Values) -> Match | None:
    """A shift and clip of a sum."""
    call = values[var]
    terms = _terms(call, values)
    if terms is None:
        return None
    found = _sum(call, terms)
    return None if found is None else _match(var, found)


def clipped_by_channel(var: relax.Var, values: Values) -> Match | None:
    """A requantized sum with an upper bound c for each channel.

        min(q, c) = min(q + 127 - c, 127) - (127 - c)

    The clip of the first layer is that at 127; the second one, a copy, takes back what was added.
    """
    scaled, bound = values[var].args
    call = values.get(scaled)
    high = per_channel(bound, var)
    terms = _terms(call, values)
    if terms is None or high is None or high.min() < 0:
        return None
    found = _sum(call, terms)
    if found is None or (found.shift < 0).any():
        return None
    added = INT8_HIGH - np.minimum(high, found.high)
    first = replace(found, bias=found.bias + (added << found.shift), low=INT8_LOW, high=INT8_HIGH)
    tensor, raised = tensor_of(var), f"{var.name}_raised"
    inner = _layer(raised, first)
    if tensor is None or inner is None or len(tensor.shape) != 4:
        return None
    outer = Convolution(
        name=str(var.name),
        output=tensor.name,
        data=raised,
        weight=identity(len(added)),
        bias=(-added).astype("int32"),
        groups=len(added),
        low=found.low,
        high=found.high,
    )
    return Match(
        var=var,
        reads=_reads(first),
        layers=(inner, outer),
        tensors=(Tensor(name=raised, shape=tensor.shape), tensor),
        macs=first.product.macs,
    )


def _terms(call: relax.Expr | None, values: Values) -> list[Term] | None:
    if call is None or not is_requantize(call):
        return None
    attrs = call.attrs
    shifts = str(attrs["mode"]) == RequantizeMode.SHIFT and str(attrs["dtype"]) == "int8"
    centred = constant_value(call.args[3])
    if not shifts or centred is None or centred.any():
        return None
    return terms_of(call.args[0], values, call)


def _sum(call: relax.Call, terms: list[Term]) -> Sum | None:
    products = [term for term in terms if isinstance(term, Product)]
    codes = [term for term in terms if isinstance(term, Codes)]
    shift = per_channel(call.args[2], call)
    if shift is None or len(products) > 1 or not 1 <= len(products) + len(codes) <= 2:
        return None
    constants = [term.value for term in terms if isinstance(term, Constant)]
    bias = sum(constants, np.zeros(len(shift), "int64"))
    product = products[0] if products else _copied(codes.pop(0))
    if product is None:
        return None
    found = Sum(
        product=product,
        residual=codes[0] if codes else None,
        bias=bias,
        shift=shift,
        low=int(call.attrs["qmin"]),
        high=int(call.attrs["qmax"]),
    )
    return _without_silent(found)


def _copied(codes: Codes) -> Product | None:
    """Codes as a product with powers of two."""
    if codes.shift.max() > LARGEST_WEIGHT_SHIFT or len(codes.data.ty.shape) != 4:
        return None
    weight = np.left_shift(identity(len(codes.shift)), codes.shift.reshape(-1, 1, 1, 1))
    return Product(data=codes.data, weight=weight.astype("int8"), groups=len(codes.shift))


def _without_silent(found: Sum) -> Sum:
    """Zeros for the channels whose sums are shifted away altogether."""
    if found.residual is not None:
        return found
    silent = found.bound - 2.0 ** (found.shift - 1.0) < 2.0 ** (found.shift - 1.0)
    silent &= found.shift > 0
    weight = found.product.weight.copy()
    weight[silent] = 0
    return replace(
        found,
        product=replace(found.product, weight=weight),
        bias=np.where(silent, 0, found.bias),
        shift=np.where(silent, 0, found.shift),
    )


def _match(var: relax.Var, found: Sum) -> Match | None:
    layer = _sum_of_two(str(var.name), found) or _layer(str(var.name), found)
    if layer is None:
        return None
    return single(var, layer, _reads(found), macs=found.product.macs)


def _reads(found: Sum) -> tuple[relax.Var, ...]:
    data = found.product.data
    return (data,) if found.residual is None else (data, found.residual.data)


def _sum_of_two(name: str, found: Sum) -> Add | None:
    """Two tensors with one shift each."""
    product, residual = found.product, found.residual
    if residual is None or product.macs or found.bias.any() or not found.fits:
        return None
    if product.weight.size != product.groups:
        return None
    left = np.log2(product.weight.reshape(-1)).astype("int64")
    if any(len(set(shift.tolist())) != 1 for shift in (left, residual.shift, found.shift)):
        return None
    return Add(
        name=name,
        output=name,
        lhs=str(product.data.name),
        rhs=str(residual.data.name),
        lhs_shift=int(left[0]),
        rhs_shift=int(residual.shift[0]),
        shift=int(found.shift[0]),
        low=found.low,
        high=found.high,
    )


def _layer(name: str, found: Sum) -> Convolution | Dense | None:
    if not found.fits:
        return None
    product, residual = found.product, found.residual
    shared = {
        "name": name,
        "output": name,
        "data": str(product.data.name),
        "weight": product.weight,
        "bias": found.bias.astype("int32") if found.bias.any() else None,
        "residual": residual
        and Residual(tensor=str(residual.data.name), shift=residual.shift.astype("int32")),
        "shift": found.shift.astype("int32"),
        "low": found.low,
        "high": found.high,
    }
    if product.weight.ndim == 2:
        return Dense(**shared)  # type: ignore[arg-type]
    return Convolution(
        **shared,  # type: ignore[arg-type]
        strides=product.strides,
        padding=product.padding,
        dilation=product.dilation,
        groups=product.groups,
    )


def _within(values: Array, limits: tuple[int, int]) -> bool:
    return bool(limits[0] <= values.min() and values.max() <= limits[1])
