"""The NumPy networks themselves, against TVM."""

import numpy as np
from tvm import relax

from numpy_network import all_values, evaluate
from plain_tvm import build, run
from realized import normal
from tvm_quant.op import Kind, QuantSpec, simulated_quantize

R, NN = relax.op, relax.op.nn


def test_a_network_of_everything_equals_tvm():
    def body(b, x, y):
        x = b.emit(simulated_quantize(x, 0.5, 3, spec=QuantSpec(symmetric=False), kind=Kind.INPUT))
        a = b.emit(NN.conv2d(x, relax.const(normal(6, 2, 3, 2)), groups=2, padding=[1, 0, 2, 1]))
        a = b.emit(NN.max_pool2d(NN.relu(a), (3, 2), strides=(2, 1), padding=[1, 0, 1, 0]), "pool")
        w = relax.const(normal(6, 2, 2, 2))
        t = b.emit(NN.conv2d_transpose(a, w, groups=3, strides=2, output_padding=1), "deconv")
        t = b.emit(NN.avg_pool2d(R.clip(t, -1, 2), (2, 2), strides=(2, 2)), "average")
        w = relax.const(normal(1, 1, 4, 5))
        last = b.emit(NN.conv2d(y, w, data_layout="NHWC", kernel_layout="HWIO"), "last")
        both = b.emit(R.concat([R.mean(t, [2, 3]), R.mean(last, [1, 2])], axis=1), "both")
        product = b.emit(R.matmul(R.reshape(both, (2, -1)), relax.const(normal(11, 3))), "product")
        return R.sigmoid(R.multiply(product, relax.const(np.float32(3)))), NN.softmax(product)

    mod = build(body, x=(2, 4, 8, 7), y=(2, 3, 5, 4))
    inputs = normal(2, 4, 8, 7), normal(2, 3, 5, 4, seed=1)
    for got, wanted in zip(evaluate(mod, *inputs), run(mod, *inputs), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert all_values(mod, *inputs)["both"].shape == (2, 11)
