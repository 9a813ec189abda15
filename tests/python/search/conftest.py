"""A network of four layers, two of which read one tensor, for tests of searches."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from plain_tvm import build
from realized import normal
from tvm_quant import QuantizeConfig
from tvm_quant.search import Subject

R, NN = relax.op, relax.op.nn
WEIGHTS = [
    normal(*shape, seed=seed) / 4
    for seed, shape in enumerate([(4, 2, 3, 3), (4, 4, 1, 1), (4, 4, 3, 3), (8, 5)])
]
CONFIG = QuantizeConfig(weight_rounding="nearest", match_channel_scales=False)
DATA = np.abs(normal(8, 2, 6, 6, seed=9))


def body(b, x):
    """stem, then two branches that are joined, then a classifier."""
    stem = b.emit(NN.conv2d(x, relax.const(WEIGHTS[0]), padding=1), "stem")
    bias = b.emit(R.add(stem, relax.const(normal(1, 4, 1, 1, seed=5))), "bias")
    relu = b.emit(NN.relu(bias), "relu")
    left = b.emit(NN.conv2d(relu, relax.const(WEIGHTS[1])), "left")
    right = b.emit(NN.conv2d(relu, relax.const(WEIGHTS[2]), padding=1), "right")
    joined = b.emit(R.concat([b.emit(NN.relu(left)), b.emit(NN.relu(right))], 1), "joined")
    head = R.matmul(b.emit(R.mean(joined, [2, 3]), "mean"), relax.const(WEIGHTS[3]))
    return NN.softmax(b.emit(head, "head"))


def network(batch: int = 2):
    return build(body, x=(batch, 2, 6, 6))


@pytest.fixture(scope="session")
def subject() -> Subject:
    """The network, its weights rounded to nearest: that needs no run."""
    return Subject(network(), None, DATA, CONFIG)
