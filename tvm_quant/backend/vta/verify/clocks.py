"""What has happened before an instruction runs, whatever the order: vector clocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tvm_quant.backend.vta.isa import Instruction, Stage, Token
from tvm_quant.errors import ProgramError

MOST_TOKENS = 255  # the counters of the Chisel design have 8 bits

# Instructions of each stage that have finished.
Clock = tuple[int, int, int]


def clocks(instructions: Sequence[Instruction], order: Sequence[int]) -> list[Clock]:
    """For each instruction, itself included, how many of each stage are sure to have run.

    Args:
        instructions: of a program.
        order: any order that the tokens allow. The n-th pop of a queue takes the n-th push,
            whatever the order, so all give the same clocks.

    Raises:
        ProgramError: more tokens than the hardware counts.
    """
    result: list[Clock] = [(0, 0, 0)] * len(instructions)
    latest: dict[Stage, Clock] = dict.fromkeys(Stage, (0, 0, 0))
    queues: dict[Token, deque[Clock]] = {token: deque() for token in Token}
    for index in order:
        instruction = instructions[index]
        stage = instruction.stage
        known = [latest[stage], *(queues[token].popleft() for token in instruction.pops)]
        clock = [max(parts) for parts in zip(*known, strict=True)]
        clock[stage] += 1
        result[index] = latest[stage] = (clock[0], clock[1], clock[2])
        for token in instruction.pushes:
            queues[token].append(result[index])
            if len(queues[token]) > MOST_TOKENS:
                raise ProgramError(
                    f"VTA program: more than {MOST_TOKENS} tokens {token.name} wait at "
                    f"instruction {index}."
                )
    return result
