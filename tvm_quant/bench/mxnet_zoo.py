"""`mxnet`: every network of the Gluon vision zoo, from a live block and from its exported files.

Nothing is downloaded: weights are random with a seed, statistics of batch norms those of one batch,
images are noise. So a signal-to-noise ratio compares networks of one kind, and says nothing of
accuracy.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tvm
import tvm_ffi
import typer
from tvm import IRModule

from tvm_quant import frontend
from tvm_quant.backend import Runner
from tvm_quant.bench import options
from tvm_quant.bench.measure import Latency, quiet
from tvm_quant.bench.processes import fresh_processes
from tvm_quant.bench.report import Sheet, latency, number, publish, stderr
from tvm_quant.bench.samples import Array
from tvm_quant.errors import BackendError
from tvm_quant.frontend.base import missing_extra
from tvm_quant.lists import matching
from tvm_quant.quantize import quantize
from tvm_quant.report import sqnr_db
from tvm_quant.transform import Prepare

#: Largest difference from MXNet, relative to the largest output.
FLOAT_ERROR = 1e-5

#: Height and width of the images of each network.
NETWORKS = {
    "alexnet": 224,
    **{f"densenet{depth}": 224 for depth in (121, 161, 169, 201)},
    "inceptionv3": 299,
    **{f"mobilenet{width}": 224 for width in ("0.25", "0.5", "0.75", "1.0")},
    **{f"mobilenetv2_{width}": 224 for width in ("0.25", "0.5", "0.75", "1.0")},
    **{f"resnet{depth}_v{v}": 224 for v in (1, 2) for depth in (18, 34, 50, 101, 152)},
    **{f"squeezenet{version}": 224 for version in ("1.0", "1.1")},
    **{f"vgg{depth}{norm}": 224 for depth in (11, 13, 16, 19) for norm in ("", "_bn")},
}

#: What a network is called with, and what is measured on.
INPUT, CALIBRATION, EVALUATION = "data", 8, 4


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One network of the zoo.

    Attributes:
        network: name in the zoo.
        error: of our float network against MXNet's, relative to the largest output; the larger of
            block and files.
        sqnr_db: of the int8 network against the float one.
        float_ms, int8_ms: latencies of one image, measured in turns; None without rounds.
        import_s, quantize_s: seconds to read the block, and to calibrate and quantize.
    """

    network: str
    error: float
    sqnr_db: float
    float_ms: Latency | None
    int8_ms: Latency | None
    import_s: float
    quantize_s: float


def mxnet_zoo(
    only: options.Only = None,
    rounds: options.Rounds = 10,
    calibration: Annotated[int, typer.Option("--calib", min=1, help="Images.")] = CALIBRATION,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Import every network of MXNet's vision zoo, compare it with MXNet, and quantize it.

    An interrupt leaves the table of those that were measured.

    Raises:
        BackendError: a network computes something else than MXNet, after all were measured.
    """
    names, console = matching(only or ["*"], NETWORKS), stderr()
    _library()
    results: list[Imported] = []
    try:
        for name in names:
            started = time.perf_counter()
            with console.status(f"{name} ..."):
                results.append(_in_process(name, rounds, calibration))
            console.print(f"{name}: measured in {time.perf_counter() - started:.0f} s")
    finally:  # what was measured before an interrupt took long
        if results:
            publish(_sheet(results), [dataclasses.asdict(one) for one in results], json, markdown)
    wrong = [one.network for one in results if not one.error <= FLOAT_ERROR]
    if wrong:
        raise BackendError(
            f"These networks differ from MXNet by more than {FLOAT_ERROR:.0e} of the largest "
            f"output: {', '.join(wrong)}."
        )


def _in_process(name: str, rounds: int, calibration: int) -> Imported:
    """`measure` in a process of its own, which gives all of its memory back."""
    with fresh_processes(1) as pool:
        return pool.submit(measure, name, rounds, calibration).result()


def measure(name: str, rounds: int, calibration: int) -> Imported:
    """Import, compare, quantize, compile and time one network."""
    mxnet, size = _library(), NETWORKS[name]
    images = np.random.default_rng(0).normal(size=(calibration + EVALUATION, 3, size, size))
    images = images.astype("float32")
    block = _network(mxnet, name, images[:2])
    evaluation = images[calibration:]
    wanted = np.concatenate([block(mxnet.nd.array(x[None])).asnumpy() for x in evaluation])

    started = time.perf_counter()
    shapes = {INPUT: (1, 3, size, size)}
    live, _ = frontend.load(block, shapes=shapes)
    import_s = time.perf_counter() - started
    runner = Runner(_prepared(live))
    exact = _outputs(runner, evaluation)
    error = _error(exact, wanted)
    with _exported(mxnet, block, images[:1]) as path:
        stored, _ = frontend.load(path, shapes=shapes)
    if not tvm_ffi.structural_equal(stored, live, map_free_vars=True):
        error = max(error, _error(_outputs(Runner(_prepared(stored)), evaluation), wanted))

    started = time.perf_counter()
    with quiet():
        int8 = quantize(live, None, images[:calibration])
    quantize_s = time.perf_counter() - started
    integers = Runner(int8)
    times = _latencies([runner, integers], evaluation[:1], rounds)
    return Imported(
        network=name,
        error=error,
        sqnr_db=sqnr_db(exact, _outputs(integers, evaluation)),
        float_ms=times[0],
        int8_ms=times[1],
        import_s=import_s,
        quantize_s=quantize_s,
    )


def _library() -> Any:
    """MXNet, computing one operator after the other: its fusion for oneDNN changes results."""
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
    try:
        import mxnet
    except (ImportError, AttributeError) as error:  # with a newer NumPy it lacks numpy.bool
        raise missing_extra("mxnet", "mxnet") from error
    return mxnet


def _network(mxnet: Any, name: str, batch: Array) -> Any:
    """With random weights; batch norms learn their statistics from one batch."""
    mxnet.random.seed(0)
    block = mxnet.gluon.model_zoo.vision.get_model(name)
    block.initialize(mxnet.init.Xavier(magnitude=2))
    norms: list[Any] = []

    def visit(part: Any) -> None:
        if isinstance(part, mxnet.gluon.nn.BatchNorm):
            norms.append(part)

    block.apply(visit)
    before = [norm._kwargs["momentum"] for norm in norms]
    for norm in norms:
        norm._kwargs["momentum"] = 0.0
    with mxnet.autograd.train_mode():
        block(mxnet.nd.array(batch)).wait_to_read()
    for norm, momentum in zip(norms, before, strict=True):
        norm._kwargs["momentum"] = momentum
    return block


@contextmanager
def _exported(mxnet: Any, block: Any, image: Array) -> Iterator[Path]:
    """The symbol of the block in a file, its parameters beside it."""
    block.hybridize()
    block(mxnet.nd.array(image)).wait_to_read()
    with tempfile.TemporaryDirectory() as folder:
        block.export(str(Path(folder) / "network"))
        yield Path(folder) / "network-symbol.json"


def _prepared(mod: IRModule) -> IRModule:
    result: IRModule = tvm.transform.Sequential([Prepare()])(mod)
    return result


def _outputs(runner: Runner, images: Array) -> Array:
    return np.concatenate([runner.run({INPUT: image[None]})[0] for image in images])


def _error(got: Array, wanted: Array) -> float:
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def _latencies(runners: list[Runner], image: Array, rounds: int) -> list[Latency | None]:
    times: list[list[float]] = [[] for _ in runners]
    for _ in range(rounds):
        for taken, runner in zip(times, runners, strict=True):
            taken += runner.latency_ms({INPUT: image}, repeats=1)
    return [Latency.of(taken) if taken else None for taken in times]


def _sheet(results: list[Imported]) -> Sheet:
    seconds = partial(number, digits=1)
    return Sheet(
        columns=(
            "<network",
            "error of float",
            "SQNR dB",
            "ms float",
            "ms int8",
            "import s",
            "quantize s",
        ),
        rows=[
            [
                one.network,
                f"{one.error:.1e}",
                number(one.sqnr_db, 1),
                latency(one.float_ms),
                latency(one.int8_ms),
                seconds(one.import_s),
                seconds(one.quantize_s),
            ]
            for one in results
        ],
    )
