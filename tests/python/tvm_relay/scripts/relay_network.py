"""A network of Relay operators, quantized without data, as programs for TVM 0.8 to 0.19 do it."""

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

rng = np.random.RandomState(0)
data = relay.var("data", shape=(1, 3, 16, 16), dtype="float32")
net = relay.nn.conv2d(data, relay.var("w0"), channels=16, kernel_size=(3, 3), padding=(1, 1))
gamma, beta, mean, var = (relay.var(name) for name in ("gamma", "beta", "mean", "var"))
net = relay.nn.batch_norm(net, gamma, beta, mean, var)[0]
net = relay.nn.relu(net)
branch = relay.nn.conv2d(net, relay.var("w1"), channels=16, kernel_size=(3, 3), padding=(1, 1))
net = relay.nn.relu(relay.add(branch, net))
net = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(net))
net = relay.nn.bias_add(relay.nn.dense(net, relay.var("w2"), units=10), relay.var("b2"))
func = relay.Function(relay.analysis.free_vars(net), net)
mod = tvm.IRModule.from_expr(func)
mod = relay.transform.InferType()(mod)

shapes = {"w0": (16, 3, 3, 3), "w1": (16, 16, 3, 3), "w2": (10, 16), "b2": (10,)}
params = {n: tvm.nd.array((rng.randn(*s) * 0.1).astype("float32")) for n, s in shapes.items()}
for name in ("gamma", "beta", "mean", "var"):
    params[name] = tvm.nd.array((rng.rand(16) + 0.5).astype("float32"))


def run(module, weights):
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(module, target="llvm", params=weights)
    runner = graph_executor.GraphModule(lib["default"](tvm.device("llvm", 0)))
    image = np.random.RandomState(1).rand(1, 3, 16, 16).astype("float32")
    runner.set_input("data", tvm.nd.array(image))
    runner.run()
    return runner.get_output(0).numpy()


with tvm.transform.PassContext(opt_level=3), relay.quantize.qconfig(global_scale=8.0):
    quantized = relay.quantize.quantize(mod, params=params)
wanted, got = run(mod, params), run(quantized, None)
print("RELATIVE", np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
