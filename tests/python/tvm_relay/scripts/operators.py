"""A network of operators, quantized, built, saved, loaded and run, as in 2022."""

import sys

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor, utils
from tvm.relay import quantize as qtz

data = relay.var("data", shape=(1, 3, 16, 16), dtype="float32")
net = relay.nn.conv2d(
    data, relay.var("w1"), channels=8, kernel_size=(3, 3), padding=(1, 1), strides=(1, 1)
)
net = relay.nn.batch_norm(
    net, relay.var("gamma"), relay.var("beta"), relay.var("mean"), relay.var("variance")
)[0]
net = relay.nn.relu(net)
net = relay.nn.max_pool2d(net, pool_size=(2, 2), strides=(2, 2))
net = relay.nn.conv2d(net, relay.var("w2"), channels=8, kernel_size=(3, 3), padding=(1, 1))
net = relay.nn.relu(relay.nn.bias_add(net, relay.var("b2")))
net = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(net))
net = relay.nn.dense(net, relay.var("w3", shape=(10, 8)))
func = relay.Function(relay.analysis.free_vars(net), net)
mod = tvm.IRModule.from_expr(func)

rng = np.random.RandomState(0)
shapes = {
    "w1": (8, 3, 3, 3), "gamma": (8,), "beta": (8,), "mean": (8,), "variance": (8,),
    "w2": (8, 8, 3, 3), "b2": (8,), "w3": (10, 8),
}  # fmt: skip
low = {n: -0.4 if n[0] in "wb" else 0.4 for n in shapes}
params = {n: tvm.nd.array(rng.uniform(low[n], 0.5, s).astype("float32")) for n, s in shapes.items()}

checked = tvm.transform.Sequential(
    [relay.transform.InferType(), relay.transform.SimplifyInference()]
)(mod)
assert checked["main"] is not None

dev = tvm.cpu(0)
image = rng.uniform(-1, 1, (1, 3, 16, 16)).astype("float32")


def run(module):
    with tvm.transform.PassContext(opt_level=3, config={"relay.FuseOps.max_depth": 10}):
        lib = relay.build(module, target="llvm -mcpu=x86-64-v3", params=params)
    runner = graph_executor.GraphModule(lib["default"](dev))
    runner.set_input("data", tvm.nd.array(image))
    runner.run()
    assert runner.get_num_outputs() == 1
    return lib, runner, runner.get_output(0).asnumpy()


_, _, expected = run(mod)
with qtz.qconfig(skip_conv_layers=[], skip_dense_layer=False, global_scale=8.0):
    print(qtz.current_qconfig())
    quantized = qtz.quantize(mod, params=params)
lib, runner, found = run(quantized)

error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
times = np.array(runner.module.time_evaluator("run", dev, number=2, repeat=3)().results) * 1000
print(runner.benchmark(dev, repeat=2, number=2))

folder = utils.tempdir()
lib.export_library(folder.relpath("net.so"))
loaded = tvm.runtime.load_module(folder.relpath("net.so"))
again = graph_executor.GraphModule(loaded["default"](dev))
again.set_input("data", image)
again.run()
assert np.array_equal(again.get_output(0).numpy(), found)

blob = relay.save_param_dict(params)
assert sorted(relay.load_param_dict(blob)) == sorted(params)
anew = relay.create_executor("vm", mod=quantized, device=dev, target="llvm").evaluate()(image)
np.testing.assert_allclose(anew.numpy(), found, rtol=1e-6)
print(f"arguments {sys.argv[1:]}, error {error:.4f}, {times.size} times")
