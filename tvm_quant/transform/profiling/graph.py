"""The graph that is profiled: the float network, returning every tensor that gets a quantizer."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import IRModule, relax
from tvm_ffi import structural_hash

from tvm_quant.ir import bindings, consumers, node_name, tensor_shape
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Kind, Role, contraction_axes, is_simulated, kind_of, role_of
from tvm_quant.transform.quantizers import quantizers, strip_quantizers


@dataclass(frozen=True, kw_only=True)
class ProfiledTensor:
    """A tensor to gather statistics of.

    Attributes:
        name: of its variable: the key of its statistics.
        where: as messages name it.
        axis: its channel axis, if of fixed length.
    """

    name: str
    where: str
    axis: int | None


def profiled_tensors(mod: IRModule) -> list[ProfiledTensor]:
    """The operands of all quantizers in `main` that are computed at run time, each once.

    Also what a weighted layer reads through calls that only move codes (max pool, concat, ...): the
    correction of its bias needs the means.
    """
    func = main_function(mod)
    values = {binding.var: binding.value for binding in bindings(func)}
    uses = consumers(func)
    tensors: dict[str, ProfiledTensor] = {}
    for quantizer in quantizers(func):
        if quantizer.source is None or quantizer.source in tensors:
            continue
        operand = quantizer.call.args[0]
        readers = [values[user] for user, _port in uses[quantizer.var] if user in values]
        axis = _channel_axis(quantizer.var, operand, readers, values.get(operand))
        tensors[quantizer.source] = ProfiledTensor(
            name=quantizer.source, where=str(quantizer), axis=axis
        )
    for var, call in values.items():
        if role_of(call) is not Role.CONTRACTION:
            continue
        data, weight = (values.get(operand) for operand in call.args)
        if is_simulated(weight) and kind_of(weight) is Kind.WEIGHT and not is_simulated(data):
            tensors.setdefault(str(call.args[0].name), _read_by(func, var, call))
    return list(tensors.values())


def fingerprint(mod: IRModule) -> str:
    """Of the float network in `main`: operators, shapes and weights; not names, not quantizers."""
    func = main_function(strip_quantizers(mod))
    bare = relax.Function(func.params, func.body, func.ret_ty)
    return f"{structural_hash(bare, map_free_vars=True) % 2**64:016x}"


def _read_by(func: relax.Function, var: relax.Var, call: relax.Call) -> ProfiledTensor:
    operand = call.args[0]
    shape, axis = tensor_shape(operand) or (), contraction_axes(call).data
    return ProfiledTensor(
        name=str(operand.name),
        where=f"tensor '{operand.name}', input of '{node_name(func, var)}'",
        axis=axis if axis > 0 and shape[axis] is not None else None,
    )


def _channel_axis(
    quantizer: relax.Var, operand: relax.Var, readers: list[relax.Expr], producer: relax.Expr | None
) -> int | None:
    """The channel axis that a contraction reads; else the one it computes; else by convention."""
    shape = tensor_shape(operand)
    if shape is None:
        return None
    rank = len(shape)
    axis = 1 if rank > 3 else rank - 1
    if producer is not None and role_of(producer) is Role.CONTRACTION:
        axis = contraction_axes(producer).output
    for reader in readers:
        if role_of(reader) is Role.CONTRACTION and reader.args[0].same_as(quantizer):
            axis = contraction_axes(reader).data
    return axis if axis > 0 and shape[axis] is not None else None
