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
NAME_WIDTH = 50  # characters of a layer's name in a table


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The latency of one network in one system.

    Attributes:
        network, system: names.
        latency: of one sample.
        operations: of its convolutions and matrix products, a multiply-add counts as two; None
            where they are not counted.
        peak_gops: what the CPU can do, 1e9 operations per second; None if unknown.
        layers: where the time goes; empty if that was not measured.
    """

    network: str
    system: str
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
            **vars(self.latency),
            "operations": self.operations,
            "gops": self.gops,
            "peak_gops": self.peak_gops,
            "layers": [{**asdict(layer), "gops": layer.gops} for layer in self.layers],
        }


def ratios(results: Sequence[Speed]) -> dict[str, dict[str, float]]:
    """{network: {system: its median over that of tvm_quant in int8}}, and the geometric mean."""
    medians: dict[str, dict[str, float]] = {}
    for result in results:
        medians.setdefault(result.network, {})[result.system] = result.latency.median
    found = {
        network: {system: value / times[REFERENCE] for system, value in times.items()}
        for network, times in medians.items()
        if REFERENCE in times
    }
    systems = dict.fromkeys(result.system for result in results)
    if found:
        found["geometric mean"] = {
            system: float(np.exp(np.mean([np.log(row[system]) for row in found.values()])))
            for system in systems
        }
    return found


def speed_sheet(results: Sequence[Speed]) -> Sheet:
    """One line per network: what tvm_quant reaches, each system's latency and its ratio to ours."""
    systems = list(dict.fromkeys(result.system for result in results))
    shares = ratios(results)
    found = {(result.network, result.system): result for result in results}
    rows = []
    for network in [*dict.fromkeys(result.network for result in results), "geometric mean"]:
        ours = found.get((network, REFERENCE))
        row = [network, *(_reached(ours.gops, ours.peak_gops) if ours else ("", ""))]
        for system in systems:
            result = found.get((network, system))
            row.append(latency(result.latency) if result else "")
            row.append(number(shares.get(network, {}).get(system), 2))
        rows.append(row)
    heads = [head for system in systems for head in (f"{system} ms", "ratio")]
    return Sheet(columns=("<network", "int8 GOPS", "peak %", *heads), rows=rows)


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
