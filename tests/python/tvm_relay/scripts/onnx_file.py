"""The walk-through for ONNX files: import, quantize with an assumed range, build, run."""

import sys

import numpy as np
import onnx
import tvm
from tvm import relay
from tvm.contrib import graph_executor

model = onnx.load(sys.argv[1])
mod, params = relay.frontend.from_onnx(model, shape={"image": (1, 1, 8, 8)}, freeze_params=True)
with tvm.transform.PassContext(opt_level=3):
    with relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]):
        quantized = relay.quantize.quantize(mod, params)
image = np.load(sys.argv[2])
answers = []
for network in (mod, quantized):
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(network, tvm.target.Target("llvm"), params=params)
    runner = graph_executor.GraphModule(lib["default"](tvm.device("cpu", 0)))
    logits = []
    for picture in image:
        runner.run(image=picture[None])
        logits.append(runner.get_output(0).numpy())
    answers.append(np.concatenate(logits).argmax(1))
print(f"agreement {(answers[0] == answers[1]).mean():.4f}")
