"""The walk-through for ONNX files: import, quantize with an assumed range, build, run."""

import sys

import numpy as np
import onnx
import tvm
from tvm import relay
from tvm.contrib import graph_executor

model = onnx.load(sys.argv[1])
mod, params = relay.frontend.from_onnx(model, shape={"image": (1, 1, 8, 8)}, freeze_params=True)
func = mod["main"]
func = relay.Function(func.params, relay.nn.softmax(func.body), None, func.type_params, func.attrs)
mod = tvm.IRModule.from_expr(func)
with relay.build_config(opt_level=3):
    with relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]):
        quantized = relay.quantize.quantize(mod, params)
image = np.load(sys.argv[2])
answers = []
for network in (mod, quantized):
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(network, tvm.target.Target("llvm"), params=params)
    runner = graph_executor.GraphModule(lib["default"](tvm.device("cpu", 0)))
    scores = []
    for picture in image:
        runner.run(image=picture[None])
        scores.append(runner.get_output(0).numpy())
    assert np.allclose(np.concatenate(scores).sum(1), 1, atol=1e-5)
    answers.append(np.concatenate(scores).argmax(1))
print(f"agreement {(answers[0] == answers[1]).mean():.4f}")
