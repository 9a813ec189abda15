"""The walk-through for Gluon networks: calibrated on a data set of dictionaries."""

import mxnet as mx
import numpy as np
import tvm
from tvm import relay

mx.random.seed(0)
data = mx.sym.var("data")
net = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=8, name="conv0")
net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn0"), act_type="relu")
net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=8, name="conv1")
net = mx.sym.Activation(net, act_type="relu")
net = mx.sym.Pooling(net, global_pool=True, pool_type="avg", kernel=(1, 1))
net = mx.sym.FullyConnected(mx.sym.flatten(net), num_hidden=10, name="fc")

rng = np.random.RandomState(0)
shapes, _, aux_shapes = net.infer_shape(data=(1, 3, 16, 16))
args = {
    name: mx.nd.array(rng.uniform(-0.4, 0.4, shape))
    for name, shape in zip(net.list_arguments(), shapes)
    if name != "data"
}
aux = {
    name: mx.nd.array(rng.uniform(0.5, 1.0, shape))
    for name, shape in zip(net.list_auxiliary_states(), aux_shapes)
}

mod, params = relay.frontend.from_mxnet(
    net, {"data": (1, 3, 16, 16)}, arg_params=args, aux_params=aux
)


def calibrate_dataset():
    for _ in range(10):
        yield {"data": rng.uniform(-1, 1, (1, 3, 16, 16)).astype("float32")}


with relay.quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
    quantized = relay.quantize.quantize(mod, params, dataset=calibrate_dataset())

image = rng.uniform(-1, 1, (1, 3, 16, 16)).astype("float32")
found = []
for network in (mod, quantized):
    executor = relay.create_executor("vm", network, tvm.cpu(0), "llvm", params=params).evaluate()
    found.append(executor(tvm.nd.array(image)).numpy())
print(f"error {np.linalg.norm(found[1] - found[0]) / np.linalg.norm(found[0]):.4f}")
