"""Which instruction may run next: three queues in order, held back by tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random

from tvm_quant.backend.vta.isa import Instruction, Stage, Token, disassemble
from tvm_quant.errors import ProgramError

# Among the stages that may run, the one that does. State: number of instructions run so far.
Policy = Callable[[list[Stage], int, Random], Stage]


def _first(*order: Stage) -> Policy:
    return lambda ready, _step, _random: min(ready, key=order.index)


def _round_robin(ready: list[Stage], step: int, _random: Random) -> Stage:
    return min(ready, key=lambda stage: (stage - step) % len(Stage))


POLICIES: dict[str, Policy] = {
    "load-first": _first(Stage.LOAD, Stage.COMPUTE, Stage.STORE),
    "compute-first": _first(Stage.COMPUTE, Stage.STORE, Stage.LOAD),
    "store-first": _first(Stage.STORE, Stage.LOAD, Stage.COMPUTE),
    "round-robin": _round_robin,
    "random": lambda ready, _step, random: random.choice(ready),
}


def interleave(
    instructions: Sequence[Instruction], policy: str = "round-robin", *, seed: int = 0
) -> Iterator[int]:
    """Indices of the instructions in an order that the tokens allow.

    Raises:
        ProgramError: no stage can go on, or tokens are left at the end.
    """
    choose, random = POLICIES[policy], Random(seed)
    queues = {
        stage: [index for index, each in enumerate(instructions) if each.stage is stage]
        for stage in Stage
    }
    heads, tokens = dict.fromkeys(Stage, 0), Counter[Token]()
    for step in range(len(instructions)):
        ready = [
            stage
            for stage in Stage
            if heads[stage] < len(queues[stage])
            and all(tokens[token] for token in instructions[queues[stage][heads[stage]]].pops)
        ]
        if not ready:
            raise ProgramError(_deadlock(instructions, queues, heads))
        stage = choose(ready, step, random)
        index = queues[stage][heads[stage]]
        heads[stage] += 1
        tokens.subtract(instructions[index].pops)
        yield index
        tokens.update(instructions[index].pushes)
    left = {token.name: count for token, count in tokens.items() if count}
    if left:
        raise ProgramError(f"VTA program: tokens are left at the end: {left}, expected none.")


def _deadlock(
    instructions: Sequence[Instruction], queues: dict[Stage, list[int]], heads: dict[Stage, int]
) -> str:
    waiting = [
        f"{stage.name} at instruction {queues[stage][heads[stage]]} "
        f"({disassemble(instructions[queues[stage][heads[stage]]])})"
        for stage in Stage
        if heads[stage] < len(queues[stage])
    ]
    return f"VTA program: deadlock, every stage waits for a token: {'; '.join(waiting)}."
