import numpy as np
import pytest
from tvm import relax

import backend_networks as networks
import plain_tvm
from tvm_quant.backend.cpu.decompose import DecomposeInference
from tvm_quant.ir import constant

R = relax.op
GAMMA, BETA, MEAN, VARIANCE = np.random.default_rng(0).uniform(0.5, 2, (4, 5)).astype("float32")


def normalized(training):
    def body(builder, x):
        statistics = map(constant, (GAMMA, BETA, MEAN, VARIANCE))
        y = builder.emit(R.nn.batch_norm(x, *statistics, axis=1, training=training))
        return builder.emit(relax.TupleGetItem(y, 0))

    return plain_tvm.build(body, x=(3, 5, 4, 4))


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_keeps_its_meaning(training):
    x = networks.normal((3, 5, 4, 4))
    (ours,), (plain,) = (run(normalized(training), x) for run in (networks.run, plain_tvm.run))
    np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5)


def test_only_the_inference_form_is_spelled_out():
    assert "batch_norm" not in DecomposeInference()(normalized(False)).script()
    assert "batch_norm" in DecomposeInference()(normalized(True)).script()
