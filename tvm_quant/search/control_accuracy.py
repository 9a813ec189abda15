"""Accuracy control: give back precision to the layers that cost most, until enough is left.

1. Quantize everything and judge it on validation data. If it is good enough, that is all.
2. Measure how much noise each group of layers alone adds to the outputs.
3. Take the group with the most noise back to float (or to 16-bit inputs), quantize again, judge
   again; then the next one, until the target is met.

A metric that counts samples moves at random when a few of them change sides. Where the drop has
grown twice in a row, both groups are quantized again and come last. Quantizing again from the float
network is what restores weights and biases.

Source: the loop of NNCF's "quantization with accuracy control", with noise instead of a metric to
order the groups, which needs fewer samples.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy.typing as npt
from tvm import IRModule

from tvm_quant.backend import Runner, median_latency_ms
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import ConfigError
from tvm_quant.report.metrics import Score, metric
from tvm_quant.search.choice import FLOAT, Choice
from tvm_quant.search.configure import configure
from tvm_quant.search.layer_groups import LayerGroup
from tvm_quant.search.measure_sensitivity import measure_harm
from tvm_quant.search.subject import Subject
from tvm_quant.search.validate import Validation
from tvm_quant.statistics import Statistics

Array = npt.NDArray[Any]

#: Times that the metric may fall in a row.
PATIENCE = 2
#: Timed runs of each network.
ROUNDS = 40


class AccuracyWarning(UserWarning):
    """The target was not met, whatever was given back."""


class Fallback(str, Enum):
    """What layers are given that cost too much accuracy."""

    FLOAT = "float"  # they compute in float
    ACTIVATIONS_16 = "activations_16"  # they read 16-bit integers; weights stay as they are


@dataclass(frozen=True, kw_only=True)
class AccuracyTarget:
    """What quantization may cost.

    Attributes:
        metric: a name of `tvm_quant.report.METRICS`, or a function `(outputs, labels) -> float`,
            the larger the better: it gets each output and the labels of all samples.
        max_drop: the metric of the float network may lose so much, in its own unit; for "top1" and
            "agreement" these are points of 100.
        min_score: the metric has to reach this, in its own unit. One of the two is given.
        data: validation samples, in any form that `tvm_quant.quantize` takes; None takes those of
            the calibration.
        fallback: see `Fallback`.
        samples: calibration samples that groups are ordered by.

    >>> AccuracyTarget(metric="top1", max_drop=0.5).is_met(score=70.2, reference=70.6)
    True
    """

    metric: str | Score = "top1"
    max_drop: float | None = None
    min_score: float | None = None
    data: Any = None
    fallback: Fallback = Fallback.FLOAT
    samples: int = 32

    def __post_init__(self) -> None:
        metric(self.metric)
        object.__setattr__(self, "fallback", _fallback(self.fallback))
        if (self.max_drop is None) == (self.min_score is None):
            raise ConfigError(
                "An accuracy target has either max_drop or min_score; got "
                f"max_drop={self.max_drop} and min_score={self.min_score}."
            )
        if self.metric == "sqnr" and self.max_drop is not None:
            raise ConfigError(
                "The SQNR of float is infinite and has no drop; say how many dB are enough by "
                "min_score."
            )
        if self.max_drop is not None and not self.max_drop >= 0:
            raise ConfigError(f"max_drop is {self.max_drop}; expected 0 or more.")

    def is_met(self, *, score: float, reference: float) -> bool:
        """Whether a network with this metric is good enough beside float."""
        return self.missing(score=score, reference=reference) <= 1e-9

    def missing(self, *, score: float, reference: float) -> float:
        """How much the metric lacks; negative where there is some to spare."""
        if self.min_score is not None:
            return self.min_score - score
        return (reference - score) - (self.max_drop or 0.0)

    def quantize(
        self,
        mod: IRModule,
        params: Mapping[str, Array] | None,
        dataset: Any,
        config: QuantizeConfig,
        *,
        executor: Executor | None = None,
        progress: bool = False,
        statistics: Statistics | None = None,
    ) -> IRModule:
        """The network that meets the target, without the report; see `control_accuracy`."""
        return control_accuracy(
            mod,
            params,
            dataset,
            config,
            target=self,
            executor=executor,
            progress=progress,
            statistics=statistics,
        ).module


@dataclass(frozen=True, kw_only=True)
class Step:
    """A network on the way.

    Attributes:
        group: what was given back in this step; None for the first network.
        score: metric on the validation data.
        drop: what it lost against float.
        latency_ms: median of one batch of the validation data, all networks measured in turns.
        kept: whether `group` stayed as it was given back.
    """

    group: LayerGroup | None
    score: float
    drop: float
    latency_ms: float
    kept: bool


@dataclass(frozen=True, kw_only=True)
class Controlled:
    """The result of accuracy control.

    Attributes:
        module: the network.
        config: with which `tvm_quant.quantize` gives the same.
        met: whether it meets the target.
        float_score: metric of the float network.
        float_latency_ms: as in `Step`.
        score, latency_ms: of `module`.
        steps: all networks that were judged, in order.
    """

    module: IRModule
    config: QuantizeConfig
    met: bool
    float_score: float
    float_latency_ms: float
    score: float
    latency_ms: float
    steps: tuple[Step, ...]


def control_accuracy(
    mod: IRModule,
    params: Mapping[str, Array] | None = None,
    dataset: Any = None,
    config: QuantizeConfig | None = None,
    *,
    target: AccuracyTarget,
    executor: Executor | None = None,
    progress: bool = False,
    statistics: Statistics | None = None,
) -> Controlled:
    """Quantize a network so that it keeps enough of a metric.

    Args:
        mod, params, dataset, config, executor, progress, statistics: as for `tvm_quant.quantize`.
        target: what is enough. Where it cannot be met, the best network that was seen is returned,
            with an `AccuracyWarning`.

    Raises:
        ConfigError: nothing is quantized in the first place.
        DatasetError: data that does not fit, or has no labels where the metric needs them.

    Example:
        target = AccuracyTarget(metric="top1", max_drop=0.1, data="validation.npz")
        found = tvm_quant.control_accuracy(mod, params, "calibration.npz", target=target)
        print([step.drop for step in found.steps])
    """
    subject = Subject(
        mod, params, dataset, config, executor=executor, progress=progress, statistics=statistics
    )
    data = subject.dataset if target.data is None else subject.open(target.data)
    reference = Runner(subject.module)
    validation = Validation(
        reference, data, metric(target.metric), executor=executor, progress=progress
    )
    loop = _Loop(subject, target, validation)
    best = loop.run()
    return _result(loop, best, reference)


@dataclass(frozen=True, kw_only=True)
class _State:
    """A network with some groups given back."""

    returned: tuple[LayerGroup, ...]
    module: IRModule
    config: QuantizeConfig
    runner: Runner
    score: float
    drop: float


class _Loop:
    def __init__(self, subject: Subject, target: AccuracyTarget, validation: Validation):
        self.subject, self.target, self.validation = subject, target, validation
        self.history: list[tuple[LayerGroup | None, _State]] = []
        self.undone: set[int] = set()
        self.groups = subject.groups()

    def run(self) -> _State:
        """The first state that meets the target, else the best of all."""
        state = self._judge((), None)
        if self._is_met(state):
            return state
        waiting = deque(self._ordered())
        last: set[LayerGroup] = set()
        path = [state]
        while waiting:
            group = waiting.popleft()
            state = self._judge((*path[-1].returned, group), group)
            path.append(state)
            if self._is_met(state):
                return state
            if _falls(path) and not last & set(_recent(path)):
                again = _recent(path)
                self.undone |= set(range(len(self.history) - PATIENCE, len(self.history)))
                last |= set(again)
                waiting.extend(again)
                del path[-PATIENCE:]
        return max((seen for _, seen in self.history), key=lambda seen: seen.score)

    def _judge(self, returned: tuple[LayerGroup, ...], group: LayerGroup | None) -> _State:
        choice = self._given_back()
        chosen = dict.fromkeys(returned, choice)
        config = configure(self.subject.config, chosen, self.groups, keep_weights=True)
        module = self.subject.quantized(config)
        runner = Runner(module)
        score = self.validation.score_of(self.validation.outputs(runner))
        state = _State(
            returned=returned,
            module=module,
            config=config,
            runner=runner,
            score=score,
            drop=self._reference - score,
        )
        self.history.append((group, state))
        return state

    def _ordered(self) -> Sequence[LayerGroup]:
        """The most harmful group first."""
        whole = self.target.fallback is Fallback.FLOAT
        harm = measure_harm(self.subject, weights=whole, samples=self.target.samples)
        return sorted(harm, key=lambda group: -harm[group])

    def _given_back(self) -> Choice:
        if self.target.fallback is Fallback.FLOAT:
            return FLOAT
        return Choice(weight_bits=self.subject.config.nbit_weight, activation_bits=16)

    def _is_met(self, state: _State) -> bool:
        return self.target.is_met(score=state.score, reference=self._reference)

    @property
    def _reference(self) -> float:
        assert self.validation.score is not None
        return self.validation.score


def _falls(path: Sequence[_State]) -> bool:
    """Whether the metric has fallen in each of the last steps."""
    recent = path[-PATIENCE - 1 :]
    return len(recent) > PATIENCE and all(
        later.score < earlier.score for earlier, later in pairwise(recent)
    )


def _recent(path: Sequence[_State]) -> list[LayerGroup]:
    """The groups of the last steps."""
    return list(path[-1].returned[-PATIENCE:])


def _result(loop: _Loop, best: _State, reference: Runner) -> Controlled:
    runners = {"float": reference}
    runners |= {str(index): state.runner for index, (_, state) in enumerate(loop.history)}
    times = median_latency_ms(runners, loop.validation.inputs, rounds=ROUNDS)
    steps = tuple(
        Step(
            group=group,
            score=state.score,
            drop=state.drop,
            latency_ms=times[str(index)],
            kept=index not in loop.undone and set(state.returned) <= set(best.returned),
        )
        for index, (group, state) in enumerate(loop.history)
    )
    met = loop._is_met(best)
    if not met:
        warnings.warn(
            f"The accuracy target is not met: {best.score:g} of metric "
            f"'{metric(loop.target.metric).name}', where float has {loop._reference:g}, with "
            f"{len(best.returned)} of {len(loop.groups)} groups given back. Allow a "
            "larger drop, or quantize better (other estimators, more calibration samples).",
            AccuracyWarning,
            stacklevel=3,
        )
    place = [state for _, state in loop.history].index(best)
    return Controlled(
        module=best.module,
        config=best.config,
        met=met,
        float_score=loop._reference,
        float_latency_ms=times["float"],
        score=best.score,
        latency_ms=times[str(place)],
        steps=steps,
    )


def _fallback(value: Any) -> Fallback:
    try:
        return Fallback(value)
    except ValueError:
        raise ConfigError(
            f"fallback is {value!r}; expected one of {[member.value for member in Fallback]}."
        ) from None
