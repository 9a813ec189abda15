"""`vta`: networks on a simulated VTA: what it takes, whether it is right, and what integers cost.

Cycles are those of the simulator's model, an ideal bound and no prediction. Accuracies are measured
on the CPU build, which gives the same bits.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from tvm import IRModule

from tvm_quant import frontend
from tvm_quant.backend import Runner
from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.codegen import compile_region, simulate
from tvm_quant.backend.vta.partition import Part, partition
from tvm_quant.bench import cases, options
from tvm_quant.bench.configs import config_of
from tvm_quant.bench.contractions import contractions
from tvm_quant.bench.measure import Scale, Subject, quiet
from tvm_quant.bench.places import Places
from tvm_quant.bench.report import Sheet, number, save, stderr, stdout
from tvm_quant.bench.samples import Array
from tvm_quant.bench.workloads import WORKLOADS
from tvm_quant.errors import TvmQuantError
from tvm_quant.ir.signature import main_function
from tvm_quant.quantize import quantize

NETWORKS = ("mnist", "resnet8", "resnet20", "squeezenet", "mobilenetv2", "zoo/resnet18")
CONFIG = "hardware=vta"
#: What TVM did for VTA before: one range for all tensors, weights by their largest magnitude, first
#: and last layers in float.
OLD_RECIPE = (
    "hardware=vta+global_scale+weight_estimator=power2+per_channel=false+skip_conv_layers=[0]+"
    "skip_dense_layer=true+bias_correction=none+weight_rounding=nearest+match_channel_scales=false"
)
IMAGES = 4  # that are simulated
ZOO_CALIBRATION = 8  # random images: their values say nothing


@dataclass(frozen=True, kw_only=True)
class Covered:
    """One network.

    Attributes:
        regions, layers: on VTA.
        share: percent of the network's multiply-adds that VTA does.
        old_share: the same of what the old recipe leaves on integers.
        mega_cycles: of the model, for one sample in all regions.
        busy: percent of them in which the matrix unit works.
        images: simulated; different: elements of their outputs that are not those of the CPU.
        compile_s, simulate_s: seconds to compile, and to simulate one sample.
        samples: that scores are of.
        float_score, score, old_score: points of the metric; None without labels.
    """

    network: str
    regions: int
    layers: int
    share: float
    old_share: float
    mega_cycles: float
    busy: float
    images: int
    different: int
    compile_s: float
    simulate_s: float
    samples: int = 0
    float_score: float | None = None
    score: float | None = None
    old_score: float | None = None


def vta(
    only: options.Only = None,
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Simulate networks on a VTA: coverage, cycles, equality with the CPU; and their accuracy."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=0)
    results, console = list[Covered](), stderr()
    for name in cases.networks(only or NETWORKS):
        try:
            with console.status(f"{name} ..."):
                results.append(measure(name, scale))
        except TvmQuantError as error:
            console.print(f"[yellow]skipped[/] {name}: {error}", markup=True)
            continue
        save([dataclasses.asdict(result) for result in results], json, markdown, _sheet(results))
    stdout().print(_sheet(results).rich())


def measure(name: str, scale: Scale) -> Covered:
    """Quantize a network for VTA, and as TVM did before."""
    if name.startswith(cases.IN_ZOO):
        return _of_zoo(name)
    subject = Subject(WORKLOADS[name], Places.default(), scale)
    images = list(subject.evaluation.limited(IMAGES).batches(1))
    ours, old = (subject.quantize(subject.config(config)) for config in (CONFIG, OLD_RECIPE))
    result = _covered(name, ours, old, images)
    metric, labels = subject.workload.metric, subject.evaluation.labels
    if metric is None or labels is None:
        return result
    scores = [
        metric.score(outputs, labels)
        for outputs in (
            subject.float_outputs,
            *(subject.outputs(Runner(module).run) for module in (ours, old)),
        )
    ]
    return dataclasses.replace(
        result, samples=len(labels), float_score=scores[0], score=scores[1], old_score=scores[2]
    )


def coverage(mod: IRModule, feed: Mapping[str, Array]) -> tuple[list[Part], float]:
    """The regions of a realized module, and the share of its multiply-adds in them.

    Args:
        mod: of static shapes, or of those of `feed`.
        feed: inputs by name.
    """
    parts = [piece for piece in partition(main_function(mod)) if isinstance(piece, Part)]
    every = sum(one.operations for one in contractions(mod, feed)) / 2
    return parts, sum(part.macs for part in parts) / max(every, 1)


def _of_zoo(name: str) -> Covered:
    with tempfile.TemporaryDirectory() as folder, quiet():
        model, samples = cases.case(name, Path(folder), ZOO_CALIBRATION)
        mod, params = frontend.load(model)
        ours, old = (quantize(mod, params, samples, config_of(c)) for c in (CONFIG, OLD_RECIPE))
    return _covered(name, ours, old, list(samples.limited(IMAGES).batches(1)))


def _covered(
    name: str, ours: IRModule, old: IRModule, images: Sequence[Mapping[str, Array]]
) -> Covered:
    parts, share = coverage(ours, images[0])
    _, old_share = coverage(old, images[0])
    started = time.perf_counter()
    runner = Runner(ours, "vta")
    compiled = time.perf_counter()
    found = [runner.run(image) for image in images]
    simulated = time.perf_counter()
    plain = Runner(ours)
    expected = [plain.run(image) for image in images]
    cycles, steps = _modelled(parts)
    return Covered(
        network=name,
        regions=len(parts),
        layers=sum(len(part.region.layers) for part in parts),
        share=100 * share,
        old_share=100 * old_share,
        mega_cycles=cycles / 1e6,
        busy=100 * steps / cycles,
        images=len(images),
        different=sum(
            int(np.count_nonzero(a != b))
            for one, other in zip(found, expected, strict=True)
            for a, b in zip(one, other, strict=True)
        ),
        compile_s=compiled - started,
        simulate_s=(simulated - compiled) / len(images),
    )


def _modelled(parts: Sequence[Part]) -> tuple[int, int]:
    """(cycles, steps of the matrix unit) of all regions; values do not change them."""
    cycles = steps = 0
    for part in parts:
        program = compile_region(part.region, VtaConfig())
        shapes = [part.region.by_name[name].shape for name in part.region.inputs]
        run = simulate(program, [np.zeros(shape, np.int8) for shape in shapes])
        cycles, steps = cycles + run.cycles, steps + run.gemm_steps
    return cycles, steps


def _sheet(results: list[Covered]) -> Sheet:
    score = partial(number, digits=2)
    return Sheet(
        columns=(
            "<network",
            "regions",
            "layers",
            "multiply-adds on VTA %",
            "by the old recipe %",
            "M cycles",
            "busy %",
            "images",
            "different",
            "compile s",
            "simulate s",
            "float",
            "VTA",
            "old recipe",
            "samples",
        ),
        rows=[
            [
                one.network,
                str(one.regions),
                str(one.layers),
                score(one.share),
                score(one.old_share),
                score(one.mega_cycles),
                number(one.busy, 0),
                str(one.images),
                str(one.different),
                number(one.compile_s, 1),
                number(one.simulate_s, 1),
                score(one.float_score),
                score(one.score),
                score(one.old_score),
                str(one.samples or ""),
            ]
            for one in results
        ],
    )
