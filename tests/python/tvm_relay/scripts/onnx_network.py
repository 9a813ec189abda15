"""An ONNX network of which the first convolution stays in float; the library goes to a file."""

import sys

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.contrib import graph_executor

rng = np.random.RandomState(0)
weights = [rng.randn(8, 3, 3, 3) * 0.2, rng.randn(8, 8, 3, 3) * 0.1]
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["input", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["output"], pads=[1, 1, 1, 1]),
    ],
    "two_convolutions",
    [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 3, 8, 8])],
    [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["N", 8, 8, 8])],
    [numpy_helper.from_array(w.astype("float32"), f"w{i}") for i, w in enumerate(weights)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
onnx.checker.check_model(model)

mod, params = relay.frontend.from_onnx(model, {"input": (1, 3, 8, 8)})
with relay.quantize.qconfig(calibrate_mode="global_scale", global_scale=4.0, skip_conv_layers=[0]):
    quantized = relay.quantize.quantize(mod, params)

target = tvm.target.Target("llvm -mcpu=x86-64-v2")
dev = tvm.cpu(0)
image = np.random.RandomState(1).rand(1, 3, 8, 8).astype("float32")
results = []
for index, module in enumerate((mod, quantized)):
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(module, target=target, params=params)
    path = f"{sys.argv[1]}/network{index}.so"
    lib.export_library(path)
    loaded = tvm.runtime.load_module(path)
    runner = graph_executor.GraphModule(loaded["default"](dev))
    runner.run(input=image)
    results.append(runner.get_output(0).numpy())
    timing = runner.module.time_evaluator("run", dev, number=2, repeat=2)()
    assert timing.mean > 0
wanted, got = results
print("RELATIVE", np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
