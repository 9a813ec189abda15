"""`vta-mutants`: programs for VTA, each broken in one place, against the static checks.

A mutant must be refused, or give the same outputs whichever stage is faster.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import typer

from tvm_quant.backend.vta import (
    Add,
    Convolution,
    Dense,
    Layer,
    MaxPool,
    Region,
    Residual,
    Tensor,
    VtaConfig,
)
from tvm_quant.backend.vta.codegen import Program, compile_region, simulate
from tvm_quant.backend.vta.codegen.isa import FLAGS, PORTS, Instruction, Opcode, layout
from tvm_quant.backend.vta.codegen.policy import POLICIES
from tvm_quant.backend.vta.codegen.verify import verify
from tvm_quant.bench import options
from tvm_quant.bench.report import Sheet, save, stderr, stdout
from tvm_quant.errors import BackendError
from tvm_quant.lists import matching

SMALL = VtaConfig(log_inp_buff_size=11, log_wgt_buff_size=14, log_acc_buff_size=12)
Mutants = Annotated[int, typer.Option("--mutants", min=1, help="How many programs to break.")]
Random = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A program that is broken in one place.

    Attributes:
        kind: of the change, of `MUTATIONS`.
        change: what it is.
    """

    kind: str
    change: str
    region: Region
    program: Program


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What became of the mutants of a kind.

    Attributes:
        refused: by the static checks.
        harmless: accepted, with the outputs of the original under all policies.
        escaped: accepted, with others.
    """

    kind: str
    refused: int
    harmless: int
    escaped: int


def vta_mutants(
    only: options.Only = None,
    mutants: Mutants = 1000,
    seed: Annotated[int, typer.Option("--seed", help="Of the changes.")] = 0,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Break programs for VTA in one place each: the static checks refuse those that are wrong."""
    chosen = _select(only)
    found: Counter[tuple[str, str]] = Counter()
    with stderr().status("..."):
        for mutant in broken(mutants, seed, chosen):
            fate = fate_of(mutant)
            found[mutant.kind, fate] += 1
            if fate == "escaped":
                stderr().print(f"escaped: {mutant.kind} in {mutant.region.name}: {mutant.change}")
    results = [
        Survey(
            kind=kind, **{fate: found[kind, fate] for fate in ("refused", "harmless", "escaped")}
        )
        for kind in MUTATIONS
    ]
    save([dataclasses.asdict(result) for result in results], json, markdown, _sheet(results))
    stdout().print(_sheet(results).rich())
    if any(result.escaped for result in results):
        raise typer.Exit(1)


def broken(
    count: int, seed: int = 0, originals: Sequence[Region] | None = None
) -> Iterator[Mutant]:
    """Random mutants of compiled programs: kinds and programs take turns."""
    rng = np.random.default_rng(seed)
    chosen = regions() if originals is None else originals
    programs = [(region, compile_region(region, SMALL)) for region in chosen]
    kinds = list(MUTATIONS.items())
    for index in range(count):
        kind, mutate = kinds[index % len(kinds)]
        region, program = programs[index // len(kinds) % len(programs)]
        instructions = [
            Instruction(opcode=one.opcode, fields=dict(one.fields), label=one.label)
            for one in program.instructions
        ]
        change = mutate(instructions, rng)
        changed = replace(program, instructions=tuple(instructions))
        yield Mutant(kind=kind, change=change, region=region, program=changed)


def fate_of(mutant: Mutant) -> str:
    """What became of a mutant: "refused", "harmless" or "escaped"."""
    try:
        verify(mutant.program, mutant.region)
    except BackendError:
        return "refused"
    rng = np.random.default_rng(0)
    shapes = [mutant.region.by_name[name].shape for name in mutant.region.inputs]
    inputs = [rng.integers(-128, 128, shape, np.int8) for shape in shapes]
    expected = simulate(compile_region(mutant.region, SMALL), inputs).outputs
    for policy in POLICIES.values():
        try:
            outputs = simulate(mutant.program, inputs, policy=policy).outputs
        except BackendError:
            return "escaped"
        if not all(map(np.array_equal, outputs, expected)):
            return "escaped"
    return "harmless"


def _select(patterns: Sequence[str] | None) -> list[Region]:
    known = {region.name: region for region in regions()}
    return [known[name] for name in matching(patterns or ["*"], known)]


# What is broken --------------------------------------------------------------------------


def _flip_token(instructions: list[Instruction], rng: Random) -> str:
    at = int(rng.integers(len(instructions)))
    one = instructions[at]
    flags = [flag for flag in FLAGS if (one.stage, flag) in PORTS]
    flag = flags[int(rng.integers(len(flags)))]
    one.fields[flag] = 1 - one[flag]
    return f"{flag} of instruction {at} becomes {one[flag]}"


def _drop_token(instructions: list[Instruction], rng: Random) -> str:
    at, flag = _any([(at, f) for at, one in enumerate(instructions) for f in FLAGS if one[f]], rng)
    instructions[at].fields[flag] = 0
    return f"{flag} of instruction {at} is dropped"


def _drop_tokens(instructions: list[Instruction], rng: Random) -> str:
    """One push and one pop of a queue: counts still match."""
    name = _any(sorted(set(PORTS.values())), rng)
    changed = []
    for kind in ("push", "pop"):
        uses = [
            (at, flag)
            for at, one in enumerate(instructions)
            for flag in FLAGS
            if one[flag] and flag.startswith(kind) and PORTS[one.stage, flag] == name
        ]
        at, flag = _any(uses, rng)
        instructions[at].fields[flag] = 0
        changed.append(f"{flag} of instruction {at}")
    return f"{' and '.join(changed)} are dropped"


def _move_token(instructions: list[Instruction], rng: Random) -> str:
    at, flag = _any([(at, f) for at, one in enumerate(instructions) for f in FLAGS if one[f]], rng)
    stage = instructions[at].stage
    others = [to for to, one in enumerate(instructions) if one.stage is stage and not one[flag]]
    if not others:
        return _drop_token(instructions, rng)
    to = min(others, key=lambda other: abs(other - at)) if rng.random() < 0.5 else _any(others, rng)
    instructions[at].fields[flag], instructions[to].fields[flag] = 0, 1
    return f"{flag} moves from instruction {at} to {to}"


def _drop(instructions: list[Instruction], rng: Random) -> str:
    at = int(rng.integers(len(instructions)))
    del instructions[at]
    return f"instruction {at} is dropped"


def _repeat(instructions: list[Instruction], rng: Random) -> str:
    at, to = (int(place) for place in rng.integers(len(instructions), size=2))
    one = instructions[at]
    fields = {name: value for name, value in one.fields.items() if name not in FLAGS}
    copy = Instruction(opcode=one.opcode, fields=fields, label=one.label)
    instructions.insert(to, copy)
    return f"instruction {at} without its tokens comes before {to} too"


def _swap(instructions: list[Instruction], rng: Random) -> str:
    """Two of one stage: others do not see their order in the program."""
    at = int(rng.integers(len(instructions)))
    stage = instructions[at].stage
    others = [to for to, one in enumerate(instructions) if one.stage is stage and to != at]
    to = min(others, key=lambda other: abs(other - at)) if rng.random() < 0.5 else _any(others, rng)
    instructions[at], instructions[to] = instructions[to], instructions[at]
    return f"instructions {at} and {to} change places"


def _shift(instructions: list[Instruction], rng: Random) -> str:
    places = [at for at, one in enumerate(instructions) if _indices(one)]
    at = _any(places, rng)
    one = instructions[at]
    name = _any(_indices(one), rng)
    step = int(rng.choice([-16, -2, -1, -1, 1, 1, 2, 16]))
    one.fields[name] = one[name] + step
    return f"{name} of instruction {at} becomes {one[name]}"


def _indices(one: Instruction) -> list[str]:
    """The fields that say what an instruction reads, writes and does."""
    if one.opcode is Opcode.FINISH or (one.opcode is Opcode.LOAD and not one["x_size"]):
        return []
    names = [name for name, _start, _bits in layout(one.opcode, SMALL)]
    return [name for name in names if name not in (*FLAGS, "opcode")]


def _any(choices: Sequence[Any], rng: Random) -> Any:
    return choices[int(rng.integers(len(choices)))]


MUTATIONS: dict[str, Callable[[list[Instruction], Random], str]] = {
    "flip a token": _flip_token,
    "drop a token": _drop_token,
    "drop a push and a pop": _drop_tokens,
    "move a token": _move_token,
    "drop an instruction": _drop,
    "repeat an instruction": _repeat,
    "swap instructions": _swap,
    "shift an index": _shift,
}
"""{name: what changes a program in one place and says how}."""


# Whose programs ----------------------------------------------------------------------------


def regions() -> list[Region]:
    """Small regions that have all layers and, on a small VTA, several tiles and steps."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return rng.integers(-127, 128, shape, np.int8)

    def bias(count: int) -> Any:
        return rng.integers(-999, 999, count).astype(np.int32)

    def convolution(name: str, data: str, *shape: int, **attributes: Any) -> Convolution:
        attributes = {"shift": 9, "low": 0, "bias": bias(shape[0]), **attributes}
        return Convolution(
            name=name, output=f"{name}_out", data=data, weight=weight(*shape), **attributes
        )

    padded = (1, 1, 1, 1)
    first = convolution("first", "x", 20, 40, 3, 3, padding=padded)
    second = convolution(
        "second",
        "first_out",
        20,
        20,
        3,
        3,
        padding=padded,
        shift=[8, 9] * 10,
        residual=Residual(tensor="first_out", shift=4),
    )
    pool = MaxPool(
        name="pool", output="pool_out", data="x", window=(3, 3), strides=(2, 2), padding=padded
    )
    strided = convolution("strided", "pool_out", 32, 16, 3, 3, strides=(2, 2), shift=20)
    depthwise = convolution("depthwise", "x", 24, 1, 3, 3, groups=24, padding=padded)
    added = Add(
        name="sum",
        output="sum_out",
        lhs="depthwise_out",
        rhs="x",
        lhs_shift=9,
        rhs_shift=7,
        shift=8,
    )
    hidden = Dense(name="hidden", output="hidden_out", data="x", weight=weight(24, 70), shift=8)
    scores = Dense(
        name="scores",
        output="scores_out",
        data="hidden_out",
        weight=weight(10, 24),
        bias=bias(10),
        shift=-1,
    )
    return [
        _region("residual", (1, 40, 6, 5), first, second),
        _region("pool", (1, 16, 15, 11), pool, strided),
        _region("groups", (1, 24, 7, 9), depthwise, added),
        _region("rows", (3, 70), hidden, scores),
    ]


def _region(name: str, shape: tuple[int, ...], *layers: Layer) -> Region:
    tensors = {"x": Tensor(name="x", shape=shape)}
    for layer in layers:
        output = layer.output_shape(tensors)
        declared = output if len(shape) == 4 else output[:2]
        tensors[layer.output] = Tensor(name=layer.output, shape=declared)
    return Region(
        name=name,
        tensors=tuple(tensors.values()),
        layers=layers,
        inputs=("x",),
        outputs=(layers[-1].output,),
    )


def _sheet(results: Sequence[Survey]) -> Sheet:
    names = ("refused", "harmless", "escaped")
    return Sheet(
        columns=("<change", *names),
        rows=[[one.kind, *(str(getattr(one, name)) for name in names)] for one in results],
    )
