"""PartitionVta: what VTA can compute becomes calls of programs; the rest stays as it is.

Before    a = conv2d(x, w);  q = requantize(a + b, s);  c = conv2d(q, v);  p = requantize(c, t)
After     p = call_dps_packed("tvm_quant.vta.run", (x, program), out_ty=int8)

A program is data: constants of the module, which a compiled library exports. It runs where one
function is registered, `tvm_quant.vta.run`. Both sides compute the same integers, so that it makes
no difference to the result what runs where.

Needs Realize with shifts (the hardware row "vta").
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import tvm
from tvm import IRModule, relax

from tvm_quant.backend.vta.grow import grow, in_order
from tvm_quant.backend.vta.layer import Region, Tensor
from tvm_quant.backend.vta.match import Match, matches
from tvm_quant.backend.vta.match.match import tensor_of
from tvm_quant.ir.rebuild import Substitute
from tvm_quant.ir.signature import main_function


class NothingOnVtaWarning(UserWarning):
    """A network was compiled for VTA that has nothing for it."""


ProgramOf = Callable[[Region], Sequence[relax.Expr]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A region of a function, and the variables it has outside.

    Attributes:
        region: what VTA runs.
        reads, gives: variables, in the order of the region's inputs and outputs.
        macs: multiplications of the network in it.
    """

    region: Region
    reads: tuple[relax.Var, ...]
    gives: tuple[relax.Var, ...]
    macs: int


@tvm.transform.module_pass(opt_level=0, name="PartitionVta")
class PartitionVta:
    """Compile what VTA can run, and call it.

    Args:
        callee: global function that runs programs: it gets the inputs of a region, its program and
            the outputs to fill.
        program_of: compiles a region, to constants.
    """

    def __init__(self, callee: str, program_of: ProgramOf):
        self.callee = callee
        self.program_of = program_of

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        func = main_function(mod)
        pieces = list(partition(func))
        if not any(isinstance(piece, Part) for piece in pieces):
            warnings.warn(
                "VTA runs nothing of this network, the CPU runs all of it: no convolution of int8 "
                "with a fixed shape ends in a shift. Load the network with fixed shapes (shapes=, "
                "--shape) and quantize it with hardware='vta'.",
                NothingOnVtaWarning,
                stacklevel=2,
            )
            return mod
        result = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        result.update_func(mod.get_global_var("main"), self._rebuilt(func, pieces))
        return result

    def _rebuilt(
        self, func: relax.Function, pieces: Sequence[Part | relax.VarBinding]
    ) -> relax.Function:
        builder = relax.BlockBuilder()
        substitute = Substitute({})
        with builder.function("main", list(func.params)):
            with builder.dataflow():
                for piece in pieces:
                    if isinstance(piece, Part):
                        self._call(builder, piece, substitute)
                        continue
                    value = substitute.visit_expr(piece.value)
                    new = builder.emit(value, name_hint=str(piece.var.name))
                    substitute.values[piece.var] = new
                result = builder.emit_output(substitute.visit_expr(func.body.body))
            builder.emit_func_output(result)
        return builder.get()["main"].with_attrs(dict(func.attrs or {}))

    def _call(self, builder: relax.BlockBuilder, part: Part, substitute: Substitute) -> None:
        """Emit the call of a region."""
        inputs = [substitute.visit_expr(var) for var in part.reads]
        types = [var.ty for var in part.gives]
        arguments = [*inputs, *self.program_of(part.region)]
        call = relax.call_dps_packed(self.callee, arguments, types if len(types) > 1 else types[0])
        name = str(part.gives[-1].name)
        made = builder.emit(call, name_hint=name if len(types) == 1 else f"{name}_region")
        if len(types) == 1:
            substitute.values[part.gives[0]] = made
            return
        for index, var in enumerate(part.gives):
            field = builder.emit(relax.TupleGetItem(made, index), name_hint=str(var.name))
            substitute.values[var] = field


def partition(func: relax.Function) -> Iterator[Part | relax.VarBinding]:
    """The regions of a function and the bindings that remain, each behind what it reads."""
    if not all(isinstance(block, relax.DataflowBlock) for block in func.body.blocks):
        return
    found = [binding for block in func.body.blocks for binding in block.bindings]
    if not all(isinstance(binding, relax.VarBinding) for binding in found):
        return
    yield from _Partitioner(func, found, matches(func)).pieces()


class _Partitioner:
    def __init__(
        self,
        func: relax.Function,
        found: Sequence[relax.VarBinding],
        taken: dict[relax.Var, Match],
    ):
        self.values = {binding.var: binding for binding in found}
        self.results = set(relax.analysis.free_vars(func.body.body))
        self.matches = taken
        self._settle()

    def pieces(self) -> Iterator[Part | relax.VarBinding]:
        number = count()
        for members in in_order(self.order, self.reads, self.units):
            if members[0] in self.matches:
                yield self._part(f"region_{next(number)}", members)
            else:
                yield self.values[members[0]]

    def _settle(self) -> None:
        """Units of what is used; regions without a multiplication go back to the CPU."""
        while True:
            self._find_reads()
            self.units = grow(self.order, self.reads, self.matches)
            idle = [var for var in self._without_work() if var in self.matches]
            if not idle:
                return
            self.matches = {v: match for v, match in self.matches.items() if v not in set(idle)}

    def _find_reads(self) -> None:
        """What each variable reads, of those that the results need."""
        reads: dict[relax.Var, tuple[relax.Var, ...]] = {}
        needed = set(self.results)
        for var, binding in reversed(self.values.items()):
            if var not in needed:
                continue
            match = self.matches.get(var)
            operands = match.reads if match else relax.analysis.free_vars(binding.value)
            reads[var] = tuple(operand for operand in operands if operand in self.values)
            needed.update(operands)
        self.order = [var for var in self.values if var in reads]
        self.reads = reads

    def _without_work(self) -> list[relax.Var]:
        busy = {
            unit
            for var, unit in zip(self.order, self.units, strict=True)
            if var in self.matches and self.matches[var].macs
        }
        return [var for var, u in zip(self.order, self.units, strict=True) if u not in busy]

    def _part(self, name: str, members: list[relax.Var]) -> Part:
        inside = set(members)
        every = [self.matches[var] for var in members]
        reads = dict.fromkeys(v for match in every for v in match.reads if v not in inside)
        used = {v for var in self.order if var not in inside for v in self.reads[var]}
        gives = [var for var in members if var in used or var in self.results]
        tensors: list[Tensor] = [t for t in map(tensor_of, reads) if t is not None]
        tensors += [tensor for match in every for tensor in match.tensors]
        region = Region(
            name=name,
            tensors=tuple(tensors),
            layers=tuple(layer for match in every for layer in match.layers),
            inputs=tuple(str(var.name) for var in reads),
            outputs=tuple(str(var.name) for var in gives),
        )
        macs = sum(match.macs for match in every)
        return Part(region=region, reads=tuple(reads), gives=tuple(gives), macs=macs)
