"""What each group of layers costs in time, for each choice that changes the code that runs.

Weights of any bits are multiplied by the same instructions, so only float and other bits of
activations make a difference. The network is built once for each group and such choice, and all
builds are timed in turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rich.console import Console
from rich.progress import track

from tvm_quant.backend import Runner, median_latency_ms
from tvm_quant.config import BiasCorrection, WeightRounding
from tvm_quant.search.choice import Choice
from tvm_quant.search.configure import configure
from tvm_quant.search.layer_groups import LayerGroup
from tvm_quant.search.subject import Subject

#: Timed runs of each build.
ROUNDS = 30


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """Times of one batch, in milliseconds.

    Attributes:
        whole_ms: of the network as the config quantizes it.
        extra_ms: by group and choice without its weight bits, how much longer it takes when that
            group alone has that choice; negative where it is faster.
    """

    whole_ms: float
    extra_ms: Mapping[tuple[LayerGroup, Choice], float]

    def extra(self, group: LayerGroup, choice: Choice) -> float:
        """That of a choice."""
        return self.extra_ms.get((group, code_of(choice)), 0.0)


def code_of(choice: Choice) -> Choice:
    """What the code that runs depends on: not the bits of the weights."""
    return choice if choice.weight_bits is None else replace(choice, weight_bits=8)


def measure_latency(
    subject: Subject, choices: Iterable[Choice], *, rounds: int = ROUNDS
) -> Latencies:
    """Time a network with each group given each choice, alone.

    Args:
        subject: the network; latencies are those of one batch of its data, on this machine.
        choices: to choose from.
        rounds: timed runs of each build.
    """
    plain = code_of(Choice(weight_bits=8))
    codes = dict.fromkeys(code_of(choice) for choice in choices)
    trials = [(group, code) for group in subject.groups() for code in codes if code != plain]
    # The values of weights and biases take no time.
    config = replace(
        subject.config,
        weight_rounding=WeightRounding.NEAREST,
        bias_correction=BiasCorrection.NONE,
    )
    runners = {"whole": Runner(subject.quantized(config))}
    bar = track(
        trials,
        "Latencies",
        console=Console(stderr=True),
        transient=True,
        disable=not subject.progress,
    )
    for index, (group, code) in enumerate(bar):
        one = configure(config, {group: code}, subject.groups())
        runners[str(index)] = Runner(subject.quantized(one))
    batch = next(iter(subject.dataset.with_labels())).inputs
    times = median_latency_ms(runners, batch, rounds=rounds)
    return Latencies(
        whole_ms=times["whole"],
        extra_ms={trial: times[str(index)] - times["whole"] for index, trial in enumerate(trials)},
    )
