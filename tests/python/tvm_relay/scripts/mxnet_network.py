"""An MXNet network, calibrated by relative entropy on dictionaries, built and run."""

import mxnet as mx
import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

rng = np.random.RandomState(0)
data = mx.sym.Variable("data")
net = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=8, name="conv0")
net = mx.sym.Activation(net, act_type="relu")
net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=8, name="conv1")
net = mx.sym.Activation(net, act_type="relu")
net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=10, name="fc")
shapes, _, _ = net.infer_shape(data=(1, 3, 8, 8))
pairs = zip(net.list_arguments(), shapes, strict=True)
arg_params = {n: mx.nd.array(rng.randn(*s) * 0.1) for n, s in pairs if n != "data"}

mod, params = relay.frontend.from_mxnet(
    net, {"data": (1, 3, 8, 8)}, arg_params=arg_params, aux_params={}
)
target = "llvm"
dev = tvm.cpu(0)


def calibration():
    for _ in range(4):
        yield {"data": tvm.nd.array(rng.rand(1, 3, 8, 8).astype("float32"))}


def run(module, weights):
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(module, target, params=weights)
    runner = graph_executor.GraphModule(lib["default"](dev))
    runner.set_input("data", np.random.RandomState(1).rand(1, 3, 8, 8).astype("float32"))
    runner.run()
    return runner.get_output(0).numpy()


with relay.quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
    quantized = relay.quantize.quantize(mod, params, dataset=calibration())
wanted, got = run(mod, params), run(quantized, params)
print("RELATIVE", np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
