"""Networks by name, of the zoo or of `WORKLOADS`, with samples to calibrate on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from tvm_quant.bench.places import Places
from tvm_quant.bench.samples import Column, InMemory, Samples
from tvm_quant.bench.workloads import WORKLOADS
from tvm_quant.bench.zoo import ZOO
from tvm_quant.lists import matching

IN_ZOO = "zoo/"


def networks(patterns: Sequence[str] | None) -> list[str]:
    """The names that match one of the patterns, all of them without.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    known = [f"{IN_ZOO}{name}" for name in ZOO]
    known += [name for name in WORKLOADS if not name.startswith("edge/")]
    return matching(patterns or ["*"], known)


def case(name: str, folder: Path, samples: int) -> tuple[Path, Samples]:
    """(model file, at most `samples` samples): those of the zoo are random, made in `folder`."""
    if not name.startswith(IN_ZOO):
        row, places = WORKLOADS[name], Places.default()
        return row.model(places), row.calibration(places).limited(samples)
    model = ZOO[name.removeprefix(IN_ZOO)]()
    onnx.save(model, folder / "model.onnx")
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    images = np.random.default_rng(0).standard_normal((samples, *shape[1:]), np.float32)
    column = Column(stored=InMemory(images))
    return folder / "model.onnx", Samples.all_of({model.graph.input[0].name: column})
