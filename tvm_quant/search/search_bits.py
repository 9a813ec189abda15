"""Searching the bits of every layer: sensitivities, an assignment, and a check of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt
from tvm import IRModule

from tvm_quant.backend import Runner
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import ConfigError
from tvm_quant.report.metrics import Score, metric
from tvm_quant.search.assign import assign
from tvm_quant.search.budget import INT8_BITS, Budget, bits_of
from tvm_quant.search.choice import FLOAT, Choice
from tvm_quant.search.configure import configure
from tvm_quant.search.layer_groups import LayerGroup
from tvm_quant.search.measure_latency import Latencies, measure_latency
from tvm_quant.search.measure_sensitivity import Sensitivity, measure_sensitivity
from tvm_quant.search.subject import Subject
from tvm_quant.search.validate import Validation
from tvm_quant.statistics import Statistics

Array = npt.NDArray[Any]

#: Bits of weights that a search chooses from. A file stores each of them without padding.
WEIGHT_BITS = (2, 3, 4, 5, 6, 8)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a group was given.

    Attributes:
        group: the layers.
        choice: their bits.
        loss: that of the group alone, see `Sensitivity`.
        size_bytes: of its weights in a file.
    """

    group: LayerGroup
    choice: Choice
    loss: float
    size_bytes: float


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result of a search.

    Attributes:
        config: gives every layer its bits; quantize with it, or store `config.dump()`.
        module: the network, quantized so; None where that was not wanted.
        rows: one for each group, in execution order.
        share: of the bytes that the weights take with 8 bits.
        predicted: the sum of the losses.
        measured: the loss of the whole network, in the same unit; None where it was not measured.
    """

    config: QuantizeConfig
    module: IRModule | None
    rows: tuple[Row, ...]
    share: float
    predicted: float
    measured: float | None


def search_bits(
    mod: IRModule,
    params: Mapping[str, Array] | None = None,
    dataset: Any = None,
    config: QuantizeConfig | None = None,
    *,
    budget: Budget,
    weight_bits: Sequence[int] = WEIGHT_BITS,
    activation_bits: Sequence[int] = (),
    allow_float: bool = False,
    samples: int = 32,
    score: str | Score | None = None,
    executor: Executor | None = None,
    progress: bool = False,
    statistics: Statistics | None = None,
) -> Found:
    """Find the bits with which a network loses least within a budget.

    Every group of layers is measured alone with every choice (see `measure_sensitivity`); then the
    choices are made for all of them at once (see `assign`); then the network is quantized with the
    result and measured as a whole.

    Args:
        mod, params, dataset, config, executor, progress, statistics: as for `tvm_quant.quantize`.
            The executor also runs the measurements; the result is the same without.
        budget: what the weights, or a batch, may take.
        weight_bits: to choose from, 2 to 8.
        activation_bits: to choose from, 2 to 16; empty keeps what the config says.
        allow_float: whether layers may stay in float.
        samples: to measure on.
        score: a metric that counts (a name of `tvm_quant.report.METRICS`, or a function `(outputs,
            labels) -> float`); None takes the noise at the outputs.

    Returns:
        The config, the quantized network, and a row for each group.

    Raises:
        ConfigError: the budget cannot be met with these choices, or nothing is quantized.
        DatasetError: as for `tvm_quant.quantize`; also, the metric needs labels.

    Example:
        found = tvm_quant.search_bits(
            mod, params, "calibration.npz", budget=Budget(weight_bytes=0.6)
        )
        Path("bits.yaml").write_text(found.config.dump())

    Source: the additive model and the integer program as in Yao et al., "HAWQ-V3",
    arXiv:2011.10680, section 3.4, with measured losses in place of Hessian traces.
    """
    subject = Subject(
        mod, params, dataset, config, executor=executor, progress=progress, statistics=statistics
    )
    row = None if score is None else metric(score)
    sensitivity = measure_sensitivity(
        subject,
        weight_bits=weight_bits,
        activation_bits=activation_bits,
        samples=samples,
        metric=row,
    )
    latencies = None
    if budget.latency is not None:
        latencies = measure_latency(subject, _offered(sensitivity, allow_float=allow_float))
    found = choose(
        subject.config, sensitivity, budget, allow_float=allow_float, latencies=latencies
    )
    module = subject.quantized(found.config)
    few = subject.few(samples)
    validation = Validation(Runner(subject.module), few, row, executor=executor, progress=progress)
    return replace(found, module=module, measured=validation.loss(module))


def choose(
    config: QuantizeConfig,
    sensitivity: Sensitivity,
    budget: Budget,
    *,
    allow_float: bool = False,
    latencies: Latencies | None = None,
) -> Found:
    """The choices that lose least within a budget, by the losses of the groups alone.

    Args:
        config: what holds for everything else.
        sensitivity: the losses.
        budget: the limit.
        allow_float: whether layers may stay in float.
        latencies: of the choices, for a budget of latency.

    Raises:
        ConfigError: the budget cannot be met.
    """
    groups = sensitivity.groups
    choices = [
        [choice for choice in losses if allow_float or choice != FLOAT]
        for losses in sensitivity.losses
    ]
    table = list(zip(groups, choices, sensitivity.losses, strict=True))
    if budget.latency is not None:
        assert latencies is not None, "a budget of latency needs measured ones"
        costs = [[latencies.extra(group, c) for c in offered] for group, offered, _ in table]
        limit = (budget.latency - 1.0) * latencies.whole_ms
    else:
        costs = [[bits_of(group, c) for c in offered] for group, offered, _ in table]
        limit = budget.limit_bits(groups)
    try:
        indices = assign(
            losses=[[losses[choice] for choice in offered] for _, offered, losses in table],
            costs=costs,
            limit=limit,
        )
    except ConfigError as error:
        raise ConfigError(f"The network cannot take {budget}: {error}") from None
    rows = tuple(
        Row(
            group=group,
            choice=offered[index],
            loss=losses[offered[index]],
            size_bytes=bits_of(group, offered[index]) / 8,
        )
        for (group, offered, losses), index in zip(table, indices, strict=True)
    )
    total = sum(group.weights for group in groups)
    return Found(
        config=configure(config, {row.group: row.choice for row in rows}, groups),
        module=None,
        rows=rows,
        share=sum(row.size_bytes for row in rows) / max(total * INT8_BITS / 8, 1),
        predicted=sum(row.loss for row in rows),
        measured=None,
    )


def _offered(sensitivity: Sensitivity, *, allow_float: bool) -> set[Choice]:
    every = {choice for losses in sensitivity.losses for choice in losses}
    return every if allow_float else every - {FLOAT}
