"""The results of `speed`: numbers, ratios, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tvm_quant.bench.layer_times import LayerTime
from tvm_quant.bench.measure import Latency
from tvm_quant.bench.report import Sheet, latency, number

REFERENCE = "tvm_quant int8"
MEAN = "geometric mean"
NAME_WIDTH = 50  # characters of a layer's name in a table


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The latency of one network in one system.

    Attributes:
        network, system: names.
        threads: of the system.
        latency: of one sample.
        operations: of its convolutions and matrix products, a multiply-add counts as two; None
            where they are not counted.
        peak_gops: what the CPU can do, 1e9 operations per second; None if unknown.
        layers: where the time goes; empty if that was not measured.
    """

    network: str
    system: str
    threads: int = 1
    latency: Latency
    operations: int | None = None
    peak_gops: float | None = None
    layers: Sequence[LayerTime] = ()

    @property
    def gops(self) -> float | None:
        """1e9 operations per second."""
        return None if self.operations is None else self.operations / self.latency.median / 1e6

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "network": self.network,
            "system": self.system,
            "threads": self.threads,
            **vars(self.latency),
            "operations": self.operations,
            "gops": self.gops,
            "peak_gops": self.peak_gops,
            "layers": [{**asdict(layer), "gops": layer.gops} for layer in self.layers],
        }


def of_threads(results: Sequence[Speed], threads: int) -> list[Speed]:
    """Those with so many threads."""
    return [result for result in results if result.threads == threads]


def ratios(results: Sequence[Speed]) -> dict[str, dict[str, float]]:
    """{network: {system: its median over that of tvm_quant in int8}}, and the geometric mean.

    The results have the same number of threads.
    """
    medians = _medians(results)
    return _with_mean(
        {
            network: {system: value / times[REFERENCE] for system, value in times.items()}
            for network, times in medians.items()
            if REFERENCE in times
        }
    )


def _medians(results: Sequence[Speed]) -> dict[str, dict[str, float]]:
    """{network: {system: ms}}."""
    medians: dict[str, dict[str, float]] = {}
    for result in results:
        medians.setdefault(result.network, {})[result.system] = result.latency.median
    return medians


def _with_mean(rows: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The rows, and that of the geometric means of their columns, if there are any."""
    systems = next(iter(rows.values()), {})
    means = {
        system: float(np.exp(np.mean([np.log(row[system]) for row in rows.values()])))
        for system in systems
    }
    return {**rows, MEAN: means} if rows else {}


def speed_sheets(results: Sequence[Speed]) -> list[Sheet]:
    """A table for each number of threads; it is their title if there are several."""
    counts = _counts(results)
    return [
        _speed_sheet(of_threads(results, count), _in_words(count) if len(counts) > 1 else "")
        for count in counts
    ] or [_speed_sheet([], "")]


def gain_sheets(results: Sequence[Speed]) -> list[Sheet]:
    """How many times as fast systems are with more threads; nothing if all have as many."""
    first, *others = _counts(results) or [1]
    return [_gain_sheet(of_threads(results, first), of_threads(results, count)) for count in others]


def _gain_sheet(few: Sequence[Speed], many: Sequence[Speed]) -> Sheet:
    before, after = _medians(few), _medians(many)
    gains = _with_mean(
        {
            network: {system: before[network][system] / ms for system, ms in times.items()}
            for network, times in after.items()
        }
    )
    systems = next(iter(gains.values()))
    return Sheet(
        title=f"Times as fast with {_in_words(many[0].threads)} as with {few[0].threads}",
        columns=("<network", *systems),
        rows=[
            [name, *(number(row[system], 2) for system in systems)] for name, row in gains.items()
        ],
    )


def _counts(results: Sequence[Speed]) -> list[int]:
    return list(dict.fromkeys(result.threads for result in results))


def _in_words(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def _speed_sheet(results: Sequence[Speed], title: str) -> Sheet:
    """One line per network: what tvm_quant reaches, each system's latency and its ratio to ours."""
    systems = list(dict.fromkeys(result.system for result in results))
    shares = ratios(results)
    found = {(result.network, result.system): result for result in results}
    rows = []
    for network in [*dict.fromkeys(result.network for result in results), MEAN]:
        ours = found.get((network, REFERENCE))
        row = [network, *(_reached(ours.gops, ours.peak_gops) if ours else ("", ""))]
        for system in systems:
            result = found.get((network, system))
            row.append(latency(result.latency) if result else "")
            row.append(number(shares.get(network, {}).get(system), 2))
        rows.append(row)
    heads = [head for system in systems for head in (f"{system} ms", "ratio")]
    return Sheet(title=title, columns=("<network", "int8 GOPS", "peak %", *heads), rows=rows)


def layer_sheets(results: Sequence[Speed]) -> list[Sheet]:
    """Where the time goes, one table for each result that knows."""
    return [_layer_sheet(result) for result in results if result.layers]


def _layer_sheet(result: Speed) -> Sheet:
    whole = sum(layer.us for layer in result.layers)
    contractions = [layer for layer in result.layers if layer.operations]
    total = LayerTime(
        name="all contractions",
        what=f"{len(contractions)} x",
        output=(),
        us=sum(layer.us for layer in contractions),
        operations=sum(layer.operations for layer in contractions),
    )
    return Sheet(
        title=f"{result.network}: the time of {result.system}",
        columns=("<layer", "<operation", "<output", "us", "time %", "GOPS", "peak %"),
        rows=[
            [
                _shortened(layer.name),
                layer.what,
                "x".join(map(str, layer.output)),
                number(layer.us, 1),
                number(100 * layer.us / whole, 1),
                *_reached(layer.gops or None, result.peak_gops),
            ]
            for layer in (*result.layers, total)
        ],
    )


def _shortened(name: str) -> str:
    """Names of fused kernels list all that was fused."""
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 3]}..."


def _reached(gops: float | None, peak_gops: float | None) -> tuple[str, str]:
    share = 100 * gops / peak_gops if gops and peak_gops else None
    return number(gops, 1), number(share, 0)
