"""Opaque kernels that TVM's importers generate, raised back to the Relax operators they compute.

A call of a generated PrimFunc is replaced only if the TE function behind the operator generates a
structurally equal one; the candidates come from the PrimFunc's name, shapes and literals.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, topi

from tvm_quant.ir import tensor_shape
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope

_MAX_CANDIDATES = 512


@dataclass(frozen=True)
class _Candidate:
    """An operator, and the TE function that generates its kernel."""

    operator: Callable[..., relax.Expr]
    kernel: Callable[..., Any]
    attributes: tuple[Any, ...] = ()
    operator_attributes: dict[str, Any] = field(default_factory=dict)


def raise_kernel(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """The operator that a generated kernel computes."""
    gvar, operands = call.args[0], call.args[1]
    if len(call.args) > 2 or not isinstance(operands, relax.Tuple):
        return None
    func = scope.mod[gvar]
    family = re.sub(r"_?\d*$", "", str(gvar.name_hint))
    if family not in _CANDIDATES or not isinstance(func, tvm.tirx.PrimFunc):
        return None
    args = list(operands.fields)
    candidates = _CANDIDATES[family](args, tensor_shape(call), _numbers(func))
    for candidate in itertools.islice(candidates, _MAX_CANDIDATES):
        if _same_kernel(func, candidate, args):
            return candidate.operator(*args, **candidate.operator_attributes)
    return None


def _same_kernel(func: tvm.tirx.PrimFunc, candidate: _Candidate, args: list[relax.Expr]) -> bool:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", arg.ty) for i, arg in enumerate(args)]
    try:
        with builder.function("main", params):
            call = builder.call_te(candidate.kernel, *params, *candidate.attributes)
            builder.emit_func_output(builder.emit(call))
    except Exception:  # these operands do not fit the operator
        return False
    generated = next(f for f in builder.get().functions.values() if not _is_relax(f))
    return bool(tvm_ffi.structural_equal(_nameless(generated), _nameless(func)))


def _is_relax(func: object) -> bool:
    return isinstance(func, relax.Function)


def _nameless(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    return func.without_attr("global_symbol") if "global_symbol" in (func.attrs or {}) else func


def _numbers(func: tvm.tirx.PrimFunc) -> list[float]:
    """Floating-point literals in a kernel."""
    found: list[float] = []
    literal = tvm.tirx.FloatImm
    tvm_ffi.structural_walk(func.body, (literal, lambda node: found.append(float(node.value))))
    return sorted(set(found)) or [0.0]


def _extremum(operator: Callable[..., Any], kernel: Callable[..., Any]) -> _Finder:
    def find(args: list[Any], _shape: Any, numbers: list[float]) -> Iterator[_Candidate]:
        if len(args) == 2:
            yield _Candidate(operator, kernel)
        for number in numbers if len(args) == 1 else ():
            constant = relax.const(number, str(args[0].ty.dtype))
            yield _Candidate(lambda x, c=constant: operator(x, c), kernel, (number,))

    return find


def _pad(mode: str, kernel: Callable[..., Any], *more: str) -> _Finder:
    def find(args: list[Any], shape: Any, numbers: list[float]) -> Iterator[_Candidate]:
        for before, after in _pads(tensor_shape(args[0]), shape):
            widths = [int(w) for pair in zip(before, after, strict=True) for w in pair]
            for value in numbers if mode == "constant" else [0.0]:
                rest: tuple[Any, ...] = (value,) if mode == "constant" else more
                attributes = {"pad_width": widths, "pad_mode": mode, "pad_value": value}
                yield _Candidate(relax.op.nn.pad, kernel, (before, after, *rest), attributes)

    return find


def _pads(data: Any, padded: Any) -> Iterator[tuple[list[int], list[int]]]:
    if data is None or padded is None or len(data) != len(padded):
        return
    growth = [0 if None in pair else pair[1] - pair[0] for pair in zip(data, padded, strict=True)]
    if min(growth) < 0:
        return
    choices = [_even_first(g) for g in growth]
    for before in itertools.product(*choices):
        yield list(before), [g - b for g, b in zip(growth, before, strict=True)]


def _even_first(growth: int) -> list[int]:
    return sorted(range(growth + 1), key=lambda begin: abs(2 * begin - growth))


def _tile(args: list[Any], shape: Any, _numbers: list[float]) -> Iterator[_Candidate]:
    data = tensor_shape(args[0])
    if data is None or shape is None or len(data) != len(shape) or None in (*data, *shape):
        return
    repeats = [size // old for size, old in zip(shape, data, strict=True)]
    yield _Candidate(relax.op.tile, topi.tile, (repeats,), {"repeats": repeats})


def _flip(args: list[Any], shape: Any, _numbers: list[float]) -> Iterator[_Candidate]:
    for axis in range(len(shape or ())):
        yield _Candidate(relax.op.flip, topi.flip, (axis,), {"axis": axis})


_Finder = Callable[[list[Any], Any, list[float]], Iterator[_Candidate]]

_CANDIDATES: dict[str, _Finder] = {
    "circular_pad": _pad("circular", topi.nn.circular_pad),
    "flip": _flip,
    "maximum": _extremum(relax.op.maximum, topi.maximum),
    "minimum": _extremum(relax.op.minimum, topi.minimum),
    "mirror_pad": _pad("reflect", topi.nn.mirror_pad, "REFLECT"),
    "pad": _pad("constant", topi.nn.pad),
    "replicate_pad": _pad("replicate", topi.nn.replicate_pad),
    "tile": _tile,
}

RULES = (Rule(operators=("call_tir",), rewrite=raise_kernel),)
