"""SplitConversions: a network as integers between two conversions, each a function of its own.

Before    main(x):                q = astype(clip(round(x / s)), "int8")
                                  a = R.nn.conv2d(q, w, out_dtype="int32")
                                  return astype(a, "float32") * t
After     quantize_inputs(x):     return (astype(clip(round(x / s)), "int8"),)
          quantized_main(q):      return (R.nn.conv2d(q, w, out_dtype="int32"),)
          dequantize_outputs(a):  return astype(a, "float32") * t
          main(x):                return dequantize_outputs(*quantized_main(*quantize_inputs(x)))

For a device without floating point whose host converts, or a caller that keeps its data in codes.

Conversions scale, shift, round, clamp and cast each value by constants, or move it (`CONVERSIONS`),
from inputs to the first integers, or from the last integers to outputs. Where several meet, as in
the sum of two layers, they are one. Of the integers along an output's conversion the narrowest are
handed over. What no conversion leads to stays in `quantized_main`, which then takes an input or
gives an output as it is.

Needs Realize. `main` computes the same bits. Idempotent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm
from tvm import IRModule, relax

from tvm_quant.errors import ConfigError
from tvm_quant.ir import constant_value, node_name, op_name
from tvm_quant.ir.bindings import flat_operands
from tvm_quant.ir.inline import inlined
from tvm_quant.ir.names import identifier
from tvm_quant.ir.reasons import float_reasons
from tvm_quant.ir.rebuild import function_of
from tvm_quant.ir.signature import main_function
from tvm_quant.ir.sizes import free_sizes, symbolic_sizes

Binding: TypeAlias = relax.VarBinding | relax.MatchCast

QUANTIZE_INPUTS = "quantize_inputs"
QUANTIZED_MAIN = "quantized_main"
DEQUANTIZE_OUTPUTS = "dequantize_outputs"

#: What conversions consist of. `take` is one where it looks up codes in a constant table, and
#: `reshape` where the sizes that it names are those of its operand.
CONVERSIONS = frozenset(
    {
        "relax.add",
        "relax.astype",
        "relax.clip",
        "relax.concat",
        "relax.divide",
        "relax.expand_dims",
        "relax.flatten",
        "relax.maximum",
        "relax.minimum",
        "relax.multiply",
        "relax.nn.relu",
        "relax.permute_dims",
        "relax.reshape",
        "relax.right_shift",
        "relax.round",
        "relax.squeeze",
        "relax.strided_slice",
        "relax.subtract",
        "relax.take",
        "tvm_quant.quantize",
    }
)


@tvm.transform.module_pass(opt_level=0, name="SplitConversions")
class SplitConversions:
    """Take the conversions at the inputs and outputs of `main` into functions of their own.

    `main` keeps its inputs and outputs and chains three functions:

    - `quantize_inputs` takes the inputs and gives a tuple of what `quantized_main` reads, in the
      order of the inputs;
    - `quantized_main` gives a tuple of what `dequantize_outputs` reads;
    - `dequantize_outputs` gives the outputs.

    Functions that have these names already are replaced.

    Args:
        integral: refuse a network of which anything but the conversions is in float. Tensors count:
            a `requantize` takes and gives integers, though in mode FLOAT it multiplies by a float32
            number between them. `QuantizeConfig.requantize` has modes that do not.

    Raises:
        ConfigError: `integral`, and something is not; the message names the operator.
    """

    def __init__(self, *, integral: bool = False):
        self.integral = integral

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """The module with `main` in three functions."""
        whole = main_function(_FLAT(inlined(mod)))
        parts = _split(whole)
        if self.integral:
            _verify_integral(whole, parts)
        functions = {g: func for g, func in mod.functions_items() if g.name_hint not in _NAMES}
        result = IRModule(functions, attrs=mod.attrs)
        result.update(_DATAFLOW(_chained(whole, parts)))
        return result


_NAMES = ("main", QUANTIZE_INPUTS, QUANTIZED_MAIN, DEQUANTIZE_OUTPUTS)
_FLAT = tvm.transform.Sequential(
    [
        relax.transform.ToNonDataflow(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]
)
_DATAFLOW = relax.transform.ConvertToDataflow(min_size=1)


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """The bindings of a function in three parts, and what one hands to the next.

    Attributes:
        kept: what the middle computes and no conversion could.
    """

    before: list[Binding]
    inputs: list[relax.Var]
    middle: list[Binding]
    kept: set[relax.Var]
    outputs: list[relax.Var]
    after: list[Binding]


def _split(func: relax.Function) -> _Parts:
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    variables = [*func.params, *(binding.var for binding in bindings)]
    order = {var: index for index, var in enumerate(variables)}

    # From the end: what the result is converted from.
    leaving = _leaving(bindings)
    result = relax.analysis.free_vars(func.body.body)
    after = _needed(bindings, result, given=order.keys() - leaving)
    outputs = {_narrowest(var, bindings) for var in _reads(after, result) & order.keys()}
    after = _needed(bindings, result, given=outputs)

    # From the start: what inputs are converted to, as far as the middle reads it.
    entering = _entering(func.params, bindings)
    codes = {var for var in entering if not _is_float(var)}
    converted = entering.keys() | leaving | {binding.var for binding in after}
    kept = {binding.var for binding in bindings} - converted
    middle = _needed(bindings, outputs | kept, given=codes)
    inputs = _reads(middle, outputs) & order.keys()
    before = _needed(bindings, inputs, given=func.params)

    first = {**{param: index for index, param in enumerate(func.params)}, **entering}
    return _Parts(
        before=before,
        inputs=sorted(inputs, key=lambda var: (first[var], order[var])),
        middle=middle,
        kept=kept,
        outputs=sorted(outputs, key=lambda var: order[var]),
        after=after,
    )


def _leaving(bindings: Iterable[Binding]) -> set[relax.Var]:
    """Float variables that conversions compute from integers; names and tuples of any variables."""
    found: set[relax.Var] = set()
    for binding in bindings:
        operands = _converted(binding)
        converted = _is_float(binding.var) and all(
            var in found or not _is_float(var) for var in operands
        )
        if (operands and converted) or isinstance(binding.value, relax.Var | relax.Tuple):
            found.add(binding.var)
    return found


def _entering(params: Sequence[relax.Var], bindings: Iterable[Binding]) -> dict[relax.Var, int]:
    """Variables that conversions compute from float inputs, up to the first integers.

    Returns:
        {variable: index of its first input}.
    """
    first = {param: index for index, param in enumerate(params) if _is_float(param)}
    for binding in bindings:
        operands = _converted(binding)
        if operands and all(var in first and _is_float(var) for var in operands):
            first[binding.var] = min(first[var] for var in operands)
    return {var: index for var, index in first.items() if var not in set(params)}


def _converted(binding: Binding) -> list[relax.Var]:
    """The variables that a conversion converts; none if the binding is no conversion."""
    value = binding.value
    if op_name(value) not in CONVERSIONS:
        return []
    if op_name(value) == "relax.take" and constant_value(value.args[0]) is None:
        return []
    operands = [operand for operand in flat_operands(value) if isinstance(operand, relax.Var)]
    if not all(isinstance(var.ty, relax.TensorType) for var in operands):
        return []
    shapes = [operand for operand in value.args if isinstance(operand, relax.ShapeExpr)]
    sizes = {size for var in operands for size in symbolic_sizes(var)}
    return operands if all(sizes.issuperset(free_sizes(shape)) for shape in shapes) else []


def _narrowest(var: relax.Var, bindings: Iterable[Binding]) -> relax.Var:
    """The variable of fewest bits on the way of conversions of integers to `var`."""
    values = {binding.var: binding for binding in bindings}
    best = var
    while not _is_float(var) and var in values:
        operands = _converted(values[var])
        if len(operands) != 1:
            break
        (var,) = operands
        if not _is_float(var) and _bits(var) < _bits(best):
            best = var
    return best


def _needed(
    bindings: Sequence[Binding], wanted: Iterable[relax.Var], given: Collection[relax.Var]
) -> list[Binding]:
    """The bindings that compute `wanted` where `given` is known, in order."""
    read = set(wanted)
    found: list[Binding] = []
    for binding in reversed(bindings):
        if binding.var in read and binding.var not in given:
            found.insert(0, binding)
            read.update(relax.analysis.free_vars(binding.value))
    return found


def _reads(bindings: Iterable[Binding], wanted: Iterable[relax.Var]) -> set[relax.Var]:
    """What has to be known to compute `wanted` by `bindings`; symbolic dimensions, too."""
    found, known = set(wanted), set()
    for binding in bindings:
        found.update(relax.analysis.free_vars(binding.value))
        known.add(binding.var)
    return found - known


def _chained(whole: relax.Function, parts: _Parts) -> IRModule:
    """The three functions and a `main` that chains them."""
    pieces = (
        (QUANTIZE_INPUTS, whole.params, parts.before, relax.Tuple(parts.inputs)),
        (QUANTIZED_MAIN, parts.inputs, parts.middle, relax.Tuple(parts.outputs)),
        (DEQUANTIZE_OUTPUTS, parts.outputs, parts.after, whole.body.body),
    )
    builder = relax.BlockBuilder()
    convert, compute, restore = (
        builder.add_func(_described(function_of(*piece), whole), piece[0]) for piece in pieces
    )
    params = [relax.Var(str(param.name), param.ty) for param in whole.params]
    with builder.function("main", params):
        codes = _fields(builder, relax.Call(convert, params), parts.inputs)
        results = _fields(builder, relax.Call(compute, codes), parts.outputs)
        builder.emit_func_output(builder.emit(relax.Call(restore, results), "result"))
    chained = builder.get()
    chained["main"] = _described(chained["main"], whole)
    return chained


def _fields(
    builder: relax.BlockBuilder, call: relax.Call, names: Sequence[relax.Var]
) -> list[relax.Expr]:
    """The fields of the tuple that a call gives, by the names that they have elsewhere."""
    given = builder.emit(call, "given")
    return [
        builder.emit(relax.TupleGetItem(given, index), str(var.name))
        for index, var in enumerate(names)
    ]


def _described(func: relax.Function, whole: relax.Function) -> relax.Function:
    """`func` with the attributes of the whole, which go by names of variables, beside its own."""
    return func.with_attrs({**dict(whole.attrs or {}), **dict(func.attrs or {})})


def _verify_integral(whole: relax.Function, parts: _Parts) -> None:
    """Check that no tensor of the middle is in float.

    Raises:
        ConfigError: one is.
    """
    found = [binding for binding in parts.middle if _holds_float(binding.var.ty)]
    if found:
        # Rather than the conversions around it.
        culprit = next((binding for binding in found if binding.var in parts.kept), found[0])
        what = op_name(culprit.value) or type(culprit.value).__name__
        node = node_name(whole, culprit.var)
        # Reasons go by the names of variables before Realize.
        reason = float_reasons(whole).get(identifier(node))
        why = f": {reason}" if reason else ""
        raise ConfigError(f"{what} (node '{node}') gives {culprit.var.ty}{why}. {_ADVICE}")
    for var in parts.inputs:
        if _holds_float(var.ty):
            raise ConfigError(f"Nothing converts '{var.name}', which is {var.ty}. {_ADVICE}")


_ADVICE = (
    "A network that is to be integral holds nothing but integers between its inputs' and outputs' "
    "conversions. Change or leave out that operator, or do not ask for an integral network."
)


def _is_float(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and "float" in str(expr.ty.dtype)


def _holds_float(ty: tvm.ir.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return any(map(_holds_float, ty.fields))
    return isinstance(ty, relax.TensorType) and "float" in str(ty.dtype)


def _bits(expr: relax.Expr) -> int:
    return int(tvm.runtime.DataType(str(expr.ty.dtype)).bits)


__all__ = ["SplitConversions"]
