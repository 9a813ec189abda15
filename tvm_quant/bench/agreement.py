"""`agreement`: realized integers against float simulation.

Layer by layer the two are at most one step apart, and that only where a number lies so close to a
rounding boundary that a float32 cannot tell the sides: simulation adds up float32 products, and the
integers meet a float32 multiplier at the end. In a whole network the layers behind turn these few
elements into more, in a deep one into as many as chance allows: then the two SQNRs are two draws of
one noise. Their difference is told with its standard error over the samples.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import numpy as np
import typer

from tvm_quant.backend import Runner
from tvm_quant.bench import options
from tvm_quant.bench.configs import DEFAULT
from tvm_quant.bench.layers import LayerSteps, compare_layers
from tvm_quant.bench.measure import Scale, Subject
from tvm_quant.bench.report import Sheet, number, save, stdout
from tvm_quant.bench.samples import Array
from tvm_quant.hardware import hardware_row
from tvm_quant.report import sqnr_db

RESAMPLES = 400


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Integers against simulation on one network.

    Attributes:
        layers: quantized tensors, each computed from the same integers on both sides.
        simulated_db, integer_db: SQNR of each output of the whole network, against float.
        standard_error_db: of their difference, for each output; 0 with one sample.
    """

    workload: str
    config: str
    layers: list[LayerSteps]
    simulated_db: list[float]
    integer_db: list[float]
    standard_error_db: list[float]

    @property
    def steps(self) -> int:
        """The largest difference in any layer."""
        return max((layer.steps for layer in self.layers), default=0)

    @property
    def worst(self) -> LayerSteps | None:
        """The layer with the largest share of differing elements."""
        return max(self.layers, key=lambda layer: layer.share, default=None)

    @property
    def share(self) -> float:
        """Of all elements that differ, 0 to 1."""
        total = sum(layer.elements for layer in self.layers)
        differ = sum(layer.share * layer.elements for layer in self.layers)
        return differ / total if total else 0.0

    @property
    def difference_db(self) -> float:
        """The largest difference of SQNR at any output."""
        return self._difference[0]

    @property
    def error_db(self) -> float:
        """Standard error of that difference."""
        return self._difference[1]

    @property
    def _difference(self) -> tuple[float, float]:
        found = zip(self.simulated_db, self.integer_db, self.standard_error_db, strict=True)
        return max(
            ((abs(one - other), error) for one, other, error in found if one != other),
            default=(0.0, 0.0),
        )


def agreement(
    only: options.Only = None,
    config: Annotated[str, typer.Option(help="Configuration to compare in.")] = DEFAULT,
    layer_samples: Annotated[int, typer.Option(min=1, help="Samples to compare layers on.")] = 8,
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare realized integers with simulation: layer by layer, and the whole network."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=0)
    done: list[Agreement] = []

    def measure(subject: Subject) -> list[Agreement]:
        done.append(compare(subject, config, layer_samples))
        # Keep what is known so far: a long run may be cut short.
        save([_plain(result) for result in done], json, markdown, _sheet(done))
        return done[-1:]

    stdout().print(_sheet(options.for_each(only, scale, measure)).rich())


def compare(subject: Subject, name: str, layer_samples: int) -> Agreement:
    """Measure one network."""
    config = subject.config(name)
    simulated = subject.quantize(dataclasses.replace(config, simulate=True))
    integers = subject.quantize(config)
    batches = islice(subject.evaluation.batches(subject.batch), layer_samples)
    mode = config.requantize or hardware_row(config.hardware).requantize
    reference = subject.float_outputs
    outputs = [subject.outputs(Runner(mod).run) for mod in (simulated, integers)]
    noise = [
        [sqnr_db(a, b) for a, b in zip(reference, quantized, strict=True)] for quantized in outputs
    ]
    return Agreement(
        workload=subject.workload.name,
        config=name,
        layers=compare_layers(simulated, batches, mode),
        simulated_db=noise[0],
        integer_db=noise[1],
        standard_error_db=list(map(difference_error, reference, *outputs)),
    )


def difference_error(reference: Array, one: Array, other: Array) -> float:
    """Standard error of the difference of two SQNRs in dB, by resampling the samples.

    Args:
        reference, one, other: (S, ...).

    >>> ramp = np.arange(8.0).reshape(4, 2)
    >>> difference_error(ramp, ramp + 1, ramp + 1)
    0.0
    """
    from scipy.stats import bootstrap  # takes seconds to import

    noise = [_energy(quantized - reference) for quantized in (one, other)]
    if len(reference) < 2 or not all(energy.any() for energy in noise):
        return 0.0
    drawn = bootstrap(
        noise, _decibels, paired=True, n_resamples=RESAMPLES, method="percentile", rng=0
    )
    return float(drawn.standard_error)


def _energy(noise: Array) -> Array:
    return np.asarray(np.square(noise, dtype="float64").reshape(len(noise), -1).sum(axis=1))


def _decibels(one: Array, other: Array, axis: int) -> Array:
    return np.asarray(10 * np.log10(one.sum(axis=axis) / other.sum(axis=axis)))


def _sheet(results: list[Agreement]) -> Sheet:
    return Sheet(
        columns=(
            "<network",
            "tensors",
            "steps at most",
            "differ %",
            "worst tensor %",
            "<worst tensor",
            "SQNR simulated dB",
            "SQNR integers dB",
            "difference dB",
            "standard error dB",
        ),
        rows=[
            [
                result.workload,
                str(len(result.layers)),
                str(result.steps),
                number(100 * result.share, 3),
                number(100 * result.worst.share, 3) if result.worst else "",
                result.worst.node if result.worst else "",
                number(min(result.simulated_db), 2),
                number(min(result.integer_db), 2),
                number(result.difference_db, 2),
                number(result.error_db, 2),
            ]
            for result in results
        ],
    )


def _plain(result: Agreement) -> dict[str, Any]:
    return {
        **dataclasses.asdict(result),
        "steps": result.steps,
        "share": result.share,
        "difference_db": result.difference_db,
        "error_db": result.error_db,
    }
